"""Flows: graphs of jobs that wait for each other.

May import: core, store.operations.enqueue, store.operations.producers,
store.operations.read, store.records, store.statements. Start with fold.py.
"""
