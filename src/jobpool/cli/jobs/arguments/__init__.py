"""Arguments on the command line: checked, edited, and given to jobs that are replayed.

May import: cli.context, cli.exits, cli.flags, cli.jobs.acting, cli.jobs.known_names,
cli.jobs.selection, cli.jobs.state_names, cli.output, client, core, operations, store,
words. Start with checker.py.
"""
