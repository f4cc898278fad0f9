"""One PostgreSQL server: its URL, connections, pipelines and errors.

May import: core, store.statements. Start with `database`.
"""
