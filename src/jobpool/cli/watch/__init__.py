"""Commands that look on while jobs run: metrics.

May import: cli.context, cli.flags, cli.output, core, monitoring, store.
One file is one command.
"""
