"""Jobs that do not run like others: misfits, suspects, kinds that crash in a row.

May import: core, store.memory.database, store.memory.tables, store.records.
"""
