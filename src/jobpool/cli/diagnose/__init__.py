"""Commands that explain: check, doctor, status.

May import: cli.context, cli.exits, cli.flags, cli.jobs, cli.machine, cli.output,
cli.terminal, core, manual, operations, sandbox, store, supervisor. One file is one
command.
"""
