"""A supervisor's run on its host: its directory, and the marks that outlive it.

May import: core, sandbox.system. Start with `run_directory`.
"""
