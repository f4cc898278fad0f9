"""Maintenance: keeps this run alive and cleans up after dead ones.

May import: core, sandbox, store, supervisor.machine, supervisor.storage. Start with
`housekeeping`.
"""
