"""Connections that belong to callers: found below Django or SQLAlchemy, and bridged.

May import: store.records. Start with `unwrap`.
"""
