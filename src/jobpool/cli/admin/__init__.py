"""Commands about a whole queue: migrate, move, prune, pause, reclaim.

May import: cli.context, cli.output, store. One file is one command.
"""
