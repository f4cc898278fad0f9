"""Maintenance: keeps this run alive and cleans up after dead ones.

May import: supervisor.storage, store, sandbox. Start with `housekeeping`.
"""
