"""Linux as it is: /proc, descriptors, process trees, directories.

May import: core. Start with `procfs`.
"""
