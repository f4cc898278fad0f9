"""Commands about a whole queue: migrate, move, prune, erase, pause, reclaim, restored.

May import: cli.context, cli.exits, cli.flags, cli.jobs, cli.machine, cli.output,
cli.terminal, core, operations, store, supervisor. One file is one command.
"""
