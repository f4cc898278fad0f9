"""Flows in memory: stored whole, folded step by step, read, and changed by people.

May import: core, store.memory.database, store.memory.enqueue, store.memory.set_apart,
store.memory.tables, store.operations, store.records, store.statements.
Start with `fold`.
"""
