"""Commands about a whole queue: migrate, move, prune, erase, pause, reclaim, restored.

May import: cli.context, cli.exits, cli.flags, cli.jobs, cli.output, cli.terminal, core,
monitoring, operations, store, supervisor, words. One file is one command.
"""
