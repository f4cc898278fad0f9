"""Putting a child back as it was after each attempt, or finding that it cannot be.

May import: sandbox.protocol, sandbox.system. Start with `baseline`.
"""
