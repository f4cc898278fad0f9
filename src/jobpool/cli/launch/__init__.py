"""Starting a supervisor: flags, log, heartbeat file, systemd.

May import: cli.context, cli.exits, cli.flags, cli.presence, core, store, supervisor.
Start with `launch`.
"""
