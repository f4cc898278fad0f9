"""What both SQL databases share below the operations: named SQL, parameters, rows.

May import: core, store.records. Start with `session`.
"""
