"""The process that runs attempts, one after another.

May import: sandbox.reset, sandbox.confinement and below. Start with `child`.
"""
