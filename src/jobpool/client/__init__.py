"""What applications call: handlers, enqueueing, results.

May import: core, store, errors. Start with `jobpool`, then `gateway`.
"""
