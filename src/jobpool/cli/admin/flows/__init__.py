"""`jobpool flows`: what goes together, how far it is, and what is done about it.

May import: cli.context, cli.flags, cli.jobs, cli.machine, cli.output, core, operations,
store. Start with command.py.
"""
