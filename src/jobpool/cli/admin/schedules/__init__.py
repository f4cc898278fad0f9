"""`jobpool schedules`: what recurs, when it comes next, and what is done about it.

May import: cli.context, cli.flags, cli.jobs, cli.output, core, operations, store,
words. Start with command.py.
"""
