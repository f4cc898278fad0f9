"""Starting a supervisor: flags, log, heartbeat file, systemd.

May import: cli.context, cli.exits, cli.flags, cli.machine, core, monitoring, store,
supervisor. Start with `launch`.
"""
