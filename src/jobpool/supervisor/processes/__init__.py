"""Zygotes and children as processes: starting, watching, reaping.

May import: core, sandbox, store, supervisor.isolation, supervisor.machine,
supervisor.reactor.
Start with `children`.
"""
