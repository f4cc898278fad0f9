"""The supervisor's decisions: inputs in, commands out, no I/O and no clock.

May import: core, sandbox, store. Start with `machine`.
"""
