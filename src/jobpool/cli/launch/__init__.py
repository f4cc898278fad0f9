"""Starting a supervisor: flags, log, heartbeat file, systemd.

May import: cli.context, cli.output, supervisor. Start with `launch`.
"""
