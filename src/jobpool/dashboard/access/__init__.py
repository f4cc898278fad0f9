"""Who asks, whether a browser was made to ask by another page, and what it may load.

May import: core, operations. Start with `access`.
"""
