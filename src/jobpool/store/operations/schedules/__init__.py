"""Schedules: put, published, paused, and ticked in steps of one transaction each.

May import: core, store.operations.enqueue, store.operations.repair, store.records,
store.statements. Start with `ticking`.
"""
