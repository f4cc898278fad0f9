"""What commands ask of the machine they run on: its resources.

May import: core.
"""
