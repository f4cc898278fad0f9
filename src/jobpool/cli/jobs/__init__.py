"""Commands about jobs: enqueue, list, show, retry, cancel.

May import: cli.context, cli.exits, cli.flags, cli.output, cli.presence, client, core,
operations, store, supervisor. One file is one command.
"""
