"""What applications call: handlers, enqueueing, results.

May import: core, store. Start with `jobpool`, then `gateway`.
"""
