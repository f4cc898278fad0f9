"""Commands about jobs: enqueue, list, show, retry, cancel.

May import: cli.context, cli.output, client, store. One file is one command.
"""
