"""What commands ask of the machine they run on: resources, and who lives here.

May import: core, sandbox, store.
"""
