"""The store thread: the one writer, its inbox and its outbox.

May import: core, sandbox, store, supervisor.machine, supervisor.os_priority,
supervisor.reactor. Start with `thread`.
"""
