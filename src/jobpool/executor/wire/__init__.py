"""How calls and their ends are sent: messages, and files for large pickles.

May import: core, executor.pickling, sandbox. Start with `messages`.
"""
