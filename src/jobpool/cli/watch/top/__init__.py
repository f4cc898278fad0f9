"""`jobpool top`: what runs, what waits and what died, as it happens.

Threads (`watcher.py`) read the store into glances (`monitoring.glance`, pure);
keys change the view (`view.py`, pure); both together are drawn (`frame.py`, pure).
Start with command.py.

May import: cli.context, cli.flags, cli.jobs, cli.output, cli.terminal, core,
monitoring, operations, store, words.
"""
