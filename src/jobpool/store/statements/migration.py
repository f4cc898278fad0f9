"""What `jobpool migrate` would do to a store, before it does it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Tell = Callable[[str], None]
"""Receives a line for the operator while a migration works or waits."""


class MigrationPart(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of a migration: a transaction, or one statement outside of any."""

    version: int
    """The schema's version that it belongs to."""
    what: str
    """``create``, ``expand``, ``index`` or ``constraint``."""
    name: str | None = None
    """Of the index or constraint."""
    tables: tuple[str, ...] = ()
    """Those it locks or reads."""
    lock: str
    waits: str
    """Who waits for it, and for how long."""
    rows: int = 0
    """Of these tables together, by the statistics."""
    size_bytes: int = 0
    about_s: float = 0.0
    """Rough: from the tables' size, on an idle machine with a local disk."""


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that is left to do, in order."""

    url: str
    schema_version: int
    """0: the store does not exist yet."""
    newest_version: int
    parts: tuple[MigrationPart, ...]
    sql: str
    """What would be run, as a script for the database's own shell."""
