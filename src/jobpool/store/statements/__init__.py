"""What both SQL databases share below the operations: named SQL, parameters, rows.

May import: store.records. Start with `session`.
"""
