"""`jobpool tune`: limits that fit what attempts have used.

May import: cli.context, cli.flags, cli.machine, cli.output, cli.terminal, core, words.
Start with `command`.
"""
