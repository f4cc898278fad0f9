"""What operators do to a store in memory, and what is told to them.

May import: core, store.memory.database, store.memory.enqueue, store.memory.flows,
store.memory.set_apart, store.memory.tables, store.operations, store.records,
store.statements. Start with `operate`.
"""
