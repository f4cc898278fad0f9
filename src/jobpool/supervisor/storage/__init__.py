"""The store thread: the one writer, what it is given, and what it still owes.

May import: supervisor.machine, store. Start with `thread`.
"""
