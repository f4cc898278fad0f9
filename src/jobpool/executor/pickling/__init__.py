"""How functions, arguments and results become bytes and come back.

May import: errors, core. Start with `pickling`.
"""
