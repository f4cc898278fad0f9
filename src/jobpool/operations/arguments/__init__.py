"""Jobs that run again with other arguments, and what differs between the two.

May import: core, operations.action, operations.jobs, operations.principal,
operations.selection, store. Start with replay.py.
"""
