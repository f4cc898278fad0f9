"""Arguments and results as JSON, checked against the handler's signature.

May import: core, operations, store. Start with `arguments`.
"""
