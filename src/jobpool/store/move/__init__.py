"""Moving a whole queue from SQLite to PostgreSQL, once, without losing a job.

May import: store.opening, sqlite, postgres, statements. Start with `move`.
"""
