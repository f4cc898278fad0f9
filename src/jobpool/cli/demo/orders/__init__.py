"""`jobpool demo orders`: a shop whose orders are flows, killed and restarted midway.

May import: cli.demo.place, cli.demo.supervisor, cli.demo.workspace, cli.exits,
cli.output, core, operations, sandbox, store. Start with driver.py.
"""
