"""`jobpool tune`: limits that fit what attempts have used.

May import: cli.context, cli.flags, cli.output, cli.resources, core, store.
Start with `command`.
"""
