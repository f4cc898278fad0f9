"""`jobpool tune`: limits that fit what attempts have used.

May import: cli.context, cli.flags, cli.machine, cli.output, core, store. Start with
`command`.
"""
