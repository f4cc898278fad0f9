"""Whether this code can honour what a store may hold (`core.formats`)."""

from __future__ import annotations

from jobpool.core.formats import FORMAT, OLDEST
from jobpool.errors import StoreRefused
from jobpool.store.statements.session import Session


def refuse_too_new(session: Session, version: int) -> None:
    """Refuse a store that may hold what this code cannot honour.

    Args:
        session: on the store, which has tables.
        version: of its schema, for the message.

    Raises:
        StoreRefused: its least format is above ours.
    """
    least = format_from(session.value("counter", name="min_format"))
    if least > FORMAT:
        raise StoreRefused(
            f"the store {session.place} holds features of a newer release (format "
            f"{least}, schema version {version}), this jobpool knows formats up to "
            f"{FORMAT}; upgrade jobpool here, or name another store"
        )


def format_from(value: object) -> int:
    """Return a format as the database has it; the oldest for what is none."""
    return value if isinstance(value, int) else OLDEST
