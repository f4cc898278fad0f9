"""Handlers in the supervisor's own process, one after the other: nothing is isolated.

May import: core, sandbox, store, supervisor.machine, supervisor.maintenance,
supervisor.storage. Start with `dev`.
"""
