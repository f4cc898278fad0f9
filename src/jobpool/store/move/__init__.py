"""Moving a whole queue from SQLite to PostgreSQL, once, without losing a job.

May import: store.sqlite, store.postgres. Start with `move`.
"""
