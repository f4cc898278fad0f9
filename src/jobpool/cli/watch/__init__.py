"""Commands that look on while jobs run: logs, metrics, top.

May import: cli.context, cli.flags, cli.jobs, cli.machine, cli.output, cli.terminal,
core, monitoring, operations, store. One file, or one package, is one command.
"""
