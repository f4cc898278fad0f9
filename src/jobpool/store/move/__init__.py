"""Moving a whole queue from SQLite to PostgreSQL, once, without losing a job.

May import: core, store.opening, store.postgres, store.sqlite, store.statements. Start
with `move`.
"""
