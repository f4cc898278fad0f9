"""`jobpool quotas` and `jobpool tenants`: what is held back, and by what.

May import: cli.context, cli.flags, cli.jobs, cli.output, core, operations, store,
words. Start with command.py.
"""
