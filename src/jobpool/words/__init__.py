"""What people are told of a store: records become words, reasons and advice. Pure.

The command line and the dashboard say the same, since both say what stands here.

May import: core, operations, store. Start with figures.py.
"""
