"""The store thread: the one writer, its inbox and its outbox.

May import: supervisor.machine, store. Start with `thread`.
"""
