"""`jobpool demo`: honest work on real files beside handlers that misbehave for real.

May import: cli.exits, cli.machine, cli.output, client, core, operations, sandbox,
store.
"""
