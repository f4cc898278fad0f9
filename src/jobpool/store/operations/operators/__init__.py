"""What operators do: cancel, revive, pause, replay, restore, erase, and its record.

May import: core, store.operations.enqueue, store.operations.quotas,
store.operations.repair, store.records, store.statements. Start with `operate`.
"""
