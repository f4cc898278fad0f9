"""`jobpool top`: what runs, what waits and what died, as it happens.

Threads (`watcher.py`) read the store (`reading.py`) into glances (`glance.py`, pure);
keys change the view (`view.py`, pure); both together are drawn (`frame.py`, pure).
Start with command.py.

May import: cli.context, cli.flags, cli.jobs, cli.machine, cli.output, cli.terminal,
core, operations, store.
"""
