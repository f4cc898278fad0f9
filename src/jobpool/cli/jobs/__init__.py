"""Commands about jobs: enqueue, list, show, retry, cancel.

May import: cli.context, cli.exits, cli.flags, cli.machine, cli.output, cli.terminal,
client, core, operations, store, supervisor. One file is one command.
"""
