"""Commands that look on while jobs run: alerts, dashboard, logs, metrics, top.

May import: cli.context, cli.exits, cli.flags, cli.jobs, cli.launch, cli.output,
cli.terminal, core, dashboard, monitoring, operations, store, words. One file or package
is one command.
"""
