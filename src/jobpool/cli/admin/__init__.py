"""Commands about a whole queue: migrate, move, prune, pause, reclaim.

May import: cli.context, cli.flags, cli.jobs, cli.output, core, operations, store,
supervisor. One file is one command.
"""
