"""Commands that explain: check, doctor, status.

May import: cli.context, cli.exits, cli.flags, cli.machine, cli.output, cli.terminal,
core, manual, monitoring, operations, sandbox, store, supervisor, words.
One file is one command.
"""
