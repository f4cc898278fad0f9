"""What keeps a run alive and clears up after dead ones.

May import: supervisor.storage, store, sandbox. Start with `housekeeping`.
"""
