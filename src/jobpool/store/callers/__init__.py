"""Connections of callers: unwrapped from Django or SQLAlchemy, async ones bridged.

May import: errors. Start with `unwrap`.
"""
