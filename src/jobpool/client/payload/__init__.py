"""Arguments and results as JSON, checked against the handler's signature.

May import: core. Start with `arguments`.
"""
