"""One PostgreSQL server: its URL, connections, pipelines and errors.

May import: store.statements. Start with `database`.
"""
