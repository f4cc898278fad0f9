"""Deleting flows that ended long ago: whole, never a member by itself."""

from __future__ import annotations

from collections.abc import Iterator

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.flow import FlowState
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.tables.flows import Flow


def prune_flows(
    database: MemoryDatabase, retention: Retention, now_ms: int, limit: int
) -> int:
    """Delete flows that are older than is kept of their state, oldest first.

    A failed flow is kept for as long as a dead job.

    Args:
        database: what is changed, within a transaction.
        retention: how long what is kept.
        now_ms: the store's clock.
        limit: no further flow is begun once so many jobs are deleted.

    Returns:
        How many jobs were deleted.
    """
    count = 0
    for flow in _old(database, retention, now_ms):
        if count >= limit:
            break
        count += _delete(database, flow)
    return count


def prunable_members(
    database: MemoryDatabase, retention: Retention, now_ms: int
) -> int:
    """Return how many jobs `prune_flows` would delete without a limit."""
    members = database.jobs.members
    return sum(
        len(members.get(step_id, ()))
        for flow in _old(database, retention, now_ms)
        for step_id in flow.steps
    )


def _old(database: MemoryDatabase, retention: Retention, now_ms: int) -> Iterator[Flow]:
    """Yield flows that are older than is kept of their state, oldest first.

    Not one of which somebody has revived a member.
    """
    kept_s = {
        FlowState.SUCCEEDED: retention.succeeded_s,
        FlowState.FAILED: retention.dead_s,
        FlowState.CANCELED: retention.canceled_s,
    }
    old = sorted(
        (flow.finished_at_ms, flow.id)
        for flow in database.flows.rows.values()
        if flow.finished_at_ms is not None
        and (seconds := kept_s.get(flow.state)) is not None
        and flow.finished_at_ms < now_ms - round(seconds * 1000)
    )
    unended = database.jobs.unended
    for _, flow_id in old:
        flow = database.flows[flow_id]
        if not any(unended.get(step_id) for step_id in flow.steps):
            yield flow


def _delete(database: MemoryDatabase, flow: Flow) -> int:
    """Delete a flow; return how many jobs."""
    jobs = database.jobs
    ids = [job_id for step_id in flow.steps for job_id in jobs.members.get(step_id, ())]
    for job_id in ids:
        database.delete_job(job_id)
    for step_id in flow.steps:
        database.put(database.steps, step_id, None)
    database.put(database.flows, flow.id, None)
    return len(ids)
