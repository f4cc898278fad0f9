"""Restoring a child after each attempt, or finding that it cannot be restored.

May import: core, sandbox.confinement, sandbox.protocol, sandbox.system. Start with
`baseline`.
"""
