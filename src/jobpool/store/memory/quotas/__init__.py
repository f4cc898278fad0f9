"""Quotas in memory: permits are taken with the lease, and return with its end.

Nothing is remembered of what is blocked: each claim looks at every lane. So this is the
reference for stores that have to remember it.

May import: core, store.memory.database, store.memory.tables, store.records,
store.statements. Start with `claim`.
"""
