"""Commands that explain: check, doctor, status.

May import: cli.context, cli.exits, cli.flags, cli.jobs, cli.output, cli.presence,
cli.resources, core, manual, operations, sandbox, store, supervisor. One file is one
command.
"""
