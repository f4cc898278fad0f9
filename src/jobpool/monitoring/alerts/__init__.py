"""What is wrong with the queue, and who is told.

May import: core, sandbox, store. Start with `catalogue`.
"""
