"""Misfits: jobs whose arguments did not fit a supervisor's version of the handler."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobpool.core.jobs.job import Lease, Settlement
from jobpool.core.rules.repairs.misfit import Knowledge, wait_for
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Session


def misfits_among(session: Session, ids: Sequence[int]) -> set[int]:
    """Return which of these jobs are misfits."""
    if not ids:
        return set()
    found = session.rows("misfits_among", ids=as_json(ids))
    return {job_id for (job_id,) in found}


def with_misfits(session: Session, leases: tuple[Lease, ...]) -> tuple[Lease, ...]:
    """Return leases, with those of misfits marked."""
    unfit = misfits_among(session, [one.id for one in leases])
    return tuple(
        msgspec.structs.replace(one, unfit=True) if one.id in unfit else one
        for one in leases
    )


def handed_on(session: Session, s: Settlement, now_ms: int) -> Settlement:
    """Return the settlement to store: a misfit may be handed back instead of ended.

    Args:
        session: in a transaction; the job is leased.
        s: how it ended.
        now_ms: the store's clock.
    """
    if s.unknown_for_ms is None:
        return s
    ((digest, since_ms, is_elsewhere),) = session.rows(
        "fit_elsewhere", id=s.id, now_ms=now_ms
    )
    wait = wait_for(s, Knowledge(digest, since_ms, bool(is_elsewhere)), now_ms)
    if wait is None:
        return s
    session.run(
        "note_misfit",
        id=s.id,
        schema_digest=digest,
        since_ms=wait.since_ms,
        until_ms=wait.until_ms,
    )
    return wait.settlement
