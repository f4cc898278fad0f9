"""Reads the audit trail: what was done to one job, as far as rows can tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from jobpool.core.jobs.job import Job
from jobpool.operations.trail.id_ranges import names
from jobpool.store.protocol import Store
from jobpool.store.records.operating import AuditFilter, AuditRow

_PAGE = 500
_SLACK_MS = 86_400_000
"""A row has the moment at which its action began: hours of `jobpool enqueue -` may have
come before the job."""


class Entry(NamedTuple):
    """A row about one job."""

    row: AuditRow
    is_certain: bool
    """False: its ids are too many to tell; it may have been about the job."""


def entries(
    store: Store,
    which: AuditFilter,
    job_id: int | None = None,
    limit: int | None = None,
) -> Iterator[Entry]:
    """Yield rows, newest first.

    Args:
        store: where they are.
        which: the filter.
        job_id: only those about this job, which need not exist any more.
        limit: end after so many.
    """
    job = None if job_id is None else store.get(job_id)
    if job is not None and which.since_ms is None:
        # The clock may have been ahead when it was made, and set back since.
        times = (
            job.created_at_ms,
            job.run_at_ms,
            job.started_at_ms,
            job.finished_at_ms,
        )
        since_ms = max(0, min(at for at in times if at is not None) - _SLACK_MS)
        which = msgspec.structs.replace(which, since_ms=since_ms)
    left = limit
    before: int | None = None
    while page := store.audits(which, _PAGE, before):
        for row in page:
            about = True if job_id is None else _is_about(row, job_id, job)
            if about is False:
                continue
            if left is not None and left <= 0:
                return
            left = None if left is None else left - 1
            yield Entry(row, is_certain=about is True)
        before = page[-1].id


def target_of(row: AuditRow) -> Mapping[str, Any]:
    """Return what a row's action was done to; empty if another program wrote it."""
    try:
        target = msgspec.json.decode(row.target)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return target if isinstance(target, dict) else {}


def _is_about(row: AuditRow, job_id: int, job: Job | None) -> bool | None:
    """Say whether an action was done to a job; None: it may have been."""
    target = target_of(row)
    named = (names(str(target.get(part, "")), job_id) for part in ("new_ids", "ids"))
    has_made_it, is_named = named
    if has_made_it is not False:
        return has_made_it
    if is_named is None and job is not None:
        own = {"kind": job.kind, "pool": job.pool, "tenant": job.tenant}
        if any(target.get(name, value) != value for name, value in own.items()):
            return False
    return is_named
