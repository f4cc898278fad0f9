"""The supervisor's decisions: inputs in, commands out, no I/O and no clock.

May import: core, and records of store and sandbox. Start with `machine`.
"""
