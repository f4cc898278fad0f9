"""Commands about jobs: enqueue, list, show, retry, cancel.

May import: cli.context, cli.exits, cli.flags, cli.output, cli.terminal, client, core,
monitoring, operations, store, supervisor, words. One file is one command.
"""
