"""Deleting flows that ended long ago: whole, never a member by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.flow import FlowState
from jobpool.core.jobs.job import JobState
from jobpool.store.operations.flows.rows import Contested
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Session

ABANDONED_MS = 3_600_000
"""Nobody goes on with a flow of which no chunk was stored for so long."""

EVER_MS = -(2**63)
SEARCH_AGAIN_MS = 3_600_000
"""Then old jobs are looked for from the beginning."""
LATE_MS = 60_000
"""An end may be committed so long after its time."""


class Searched(NamedTuple):
    """Up to which end jobs were looked for that are too old.

    Members stay as long as their flow, among the oldest of all that has ended. Each
    search would read all of them again, so it goes on where the last one stopped. Once
    an hour it begins anew, for what others held then, or have stored since with an
    older end.
    """

    began_ms: int = EVER_MS
    """When that was last done from the beginning."""
    until_ms: Mapping[JobState, int] = {}

    def at(self, now_ms: int) -> Searched:
        """Return what still holds at a time."""
        is_fresh = 0 <= now_ms - self.began_ms < SEARCH_AGAIN_MS
        return self if is_fresh else Searched(now_ms)

    def since_ms(self, state: JobState) -> int:
        """Return from which end on jobs of a state are to be looked for."""
        return self.until_ms.get(state, EVER_MS)

    def further(self, state: JobState, until_ms: int) -> Searched:
        """Return this after a search up to an end."""
        return self._replace(until_ms={**self.until_ms, state: until_ms - LATE_MS})


def prune_flows(
    session: Session,
    retention: Retention,
    now_ms: int,
    limit: int,
    *,
    contested: Contested | None,
    deletions: Sequence[str],
) -> int:
    """Delete flows that are older than is kept of their state, oldest first.

    A failed flow is kept for as long as a dead job. Of one with more members than may
    be deleted at once, the next call deletes the rest.

    Args:
        session: in a transaction.
        retention: how long what is kept.
        now_ms: the store's clock.
        limit: how many jobs are deleted at most.
        contested: see `Folding._CONTESTED`.
        deletions: the statements that delete jobs.

    Returns:
        How many jobs were deleted.
    """
    found = old_flows(session, retention, now_ms, limit)
    if found and contested:
        rows = session.rows(contested.lock, flows=as_json(found))
        locked = {flow for (flow,) in rows}
        # One may have been retried, or gone on with, before it was locked.
        again = old_flows(session, retention, now_ms, limit)
        found = [flow for flow in again if flow in locked]
    count = 0
    for flow in found:
        if count >= limit:
            break
        count += delete_some(session, flow, limit - count, deletions)
    return count


def old_flows(
    session: Session, retention: Retention, now_ms: int, limit: int
) -> list[int]:
    """Return flows that are older than is kept of their state, oldest first."""
    kept_s = {
        FlowState.SUCCEEDED: retention.succeeded_s,
        FlowState.FAILED: retention.dead_s,
        FlowState.CANCELED: retention.canceled_s,
    }
    given = {"limit": limit}
    found = session.rows("abandoned_flows", before_ms=now_ms - ABANDONED_MS, **given)
    for state, seconds in kept_s.items():
        if seconds is not None:
            before_ms = now_ms - round(seconds * 1000)
            found += session.rows(
                "old_flows", state=state, before_ms=before_ms, **given
            )
    return [flow for (flow,) in found]


def delete_some(
    session: Session, flow: int, limit: int, deletions: Sequence[str]
) -> int:
    """Delete members of a flow, and the flow once none is left; return how many."""
    rows = session.rows("members_of_flow", flow=flow, limit=limit)
    if rows:
        ids = as_json(job_id for (job_id,) in rows)
        for name in deletions:
            session.run(name, ids=ids)
    if len(rows) < limit:
        for name in ("delete_flow_edges", "delete_flow_steps", "delete_flow"):
            session.run(name, flow=flow)
    return len(rows)
