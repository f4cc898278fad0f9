"""Flows in memory.

May import: store.records. Start with reading.py.
"""
