"""How calls and their ends are sent: messages, and files for large pickles.

May import: sandbox.protocol. Start with `messages`.
"""
