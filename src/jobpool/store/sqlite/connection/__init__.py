"""One SQLite file: finding, locking, opening it, and committing to it.

May import: store.statements. Start with `database`.
"""
