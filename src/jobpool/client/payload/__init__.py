"""Arguments and results as JSON, checked against the handler's signature.

May import: core, errors. Start with `arguments`.
"""
