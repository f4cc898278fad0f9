"""Linux primitives: /proc, descriptors, process trees, directories.

May import: core. Start with `procfs`.
"""
