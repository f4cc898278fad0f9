"""Connections of callers: unwrapped from Django or SQLAlchemy, async ones bridged.

May import: nothing of ours. Start with `unwrap`.
"""
