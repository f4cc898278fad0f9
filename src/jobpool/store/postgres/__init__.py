"""The store on PostgreSQL: one queue for many supervisors on many hosts.

Needs psycopg; `store.opening` reports it if it is missing.

May import: core, store.callers, store.contract, store.operations, store.records,
store.statements. Start with `store`.
"""
