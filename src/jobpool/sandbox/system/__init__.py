"""Linux primitives: /proc, descriptors, process trees, directories.

May import: core, errors. Start with `procfs`.
"""
