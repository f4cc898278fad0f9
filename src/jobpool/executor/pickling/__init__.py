"""How functions, arguments and results become bytes and come back.

May import: nothing of ours. Start with `pickling`.
"""
