"""What a store knows of the run that asks it."""

from __future__ import annotations

from collections.abc import Sequence

from jobpool.errors import StoreRefused
from jobpool.store.methods.session import Row, Session


def has_ended(session: Session, run_id: str) -> bool:
    """Say whether a run has ended.

    Raises:
        StoreRefused: the store does not know it: it is not the one it began in.
    """
    found = session.rows("run_has_ended", run_id=run_id)
    return bool(known(session, run_id, found)[0])


def known(session: Session, run_id: str, found: Sequence[Row]) -> Row:
    """Return what was found of a run.

    Raises:
        StoreRefused: nothing was.
    """
    if not found:
        raise StoreRefused(
            f"the store {session.place} does not know run {run_id}: the database was "
            "made anew or restored while it ran; restart jobpool"
        )
    return found[0]
