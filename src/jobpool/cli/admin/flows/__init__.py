"""`jobpool flows`: what goes together, how far it is, and what is done about it.

May import: cli.context, cli.flags, cli.jobs, cli.output, core, monitoring, operations,
store, words. Start with command.py.
"""
