"""What runs, waits and died at one moment: for the terminal and the dashboard.

May import: core, monitoring.looking, operations, store. Start with glance.py.
"""
