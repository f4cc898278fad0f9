"""How calls and their ends travel: pickles, messages, files for what is large.

May import: sandbox.protocol. Start with `messages`.
"""
