"""A supervisor's run on its host: its directory, and marks that outlive it.

May import: sandbox.system. Start with `run_directory`.
"""
