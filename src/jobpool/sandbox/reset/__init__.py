"""Restoring a child after each attempt, or finding that it cannot be restored.

May import: sandbox.confinement, sandbox.system, core. Start with `baseline`.
"""
