"""Whether code can honour what a store may hold (`core.formats`): ours and others'."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobpool.core.formats import FORMAT, OLDEST, feature_of
from jobpool.errors import FeatureHeldBack, StoreRefused
from jobpool.store.records.runs import Run
from jobpool.store.statements.session import Session

_SHOWN_MAX = 5
"""Runs that one message names."""


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


def below(runs: Iterable[Run], wanted: int) -> list[Run]:
    """Return the runs of an older format."""
    return [run for run in runs if run.format < wanted]


def held_back(behind: Sequence[Run], wanted: int) -> FeatureHeldBack:
    """Return the error for a feature that some runs do not know."""
    shown = "; ".join(run.label for run in behind[:_SHOWN_MAX])
    more = len(behind) - _SHOWN_MAX
    others = f"; and {more} more" if more > 0 else ""
    return FeatureHeldBack(
        f"{feature_of(wanted)} wait for {shown}{others}: code that does not know them. "
        "Upgrade or stop it, then try again; nothing was enqueued"
    )
