"""The store on PostgreSQL: one queue for many supervisors on many hosts.

Needs psycopg; `store.opening` reports it if it is missing. May import:
store.operations, callers, records, statements. Start with `store`.
"""
