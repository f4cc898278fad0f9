"""`jobpool flows`: what goes together, and how far it is.

May import: cli.context, cli.flags, cli.jobs, cli.output, cli.presence, core,
operations, store. Start with command.py.
"""
