"""Commands that explain: check, doctor, status.

May import: cli.context, cli.output, store, supervisor. One file is one command.
"""
