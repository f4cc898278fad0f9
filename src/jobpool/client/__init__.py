"""What applications call: handlers, enqueueing, results.

May import: core, operations, store. Start with `jobpool`, then `gateway`.
"""
