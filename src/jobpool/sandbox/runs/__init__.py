"""A supervisor's run on its host: its directory, and the marks that outlive it.

May import: sandbox.system, core. Start with `run_directory`.
"""
