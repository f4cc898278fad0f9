"""One SQLite file: locating, locking and opening it, and committing to it.

May import: core, store.statements. Start with `database`.
"""
