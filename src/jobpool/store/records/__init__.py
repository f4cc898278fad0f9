"""What goes in and out of a store, besides the records of `core.jobs.job`.

May import: core. Start with `runs`.
"""
