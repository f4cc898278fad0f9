"""`jobpool demo`: honest work on real files beside handlers that misbehave for real.

May import: cli.exits, cli.output, cli.resources, client, core, operations, sandbox,
store.
"""
