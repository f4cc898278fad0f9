"""Deleting flows that ended long ago: whole, never a member by itself."""

from __future__ import annotations

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
    count = 0
    for _, flow_id in old:
        if count >= limit:
            break
        count += _delete(database, database.flows[flow_id])
    return count


def _delete(database: MemoryDatabase, flow: Flow) -> int:
    """Delete a flow, unless somebody has revived a member; return how many jobs."""
    jobs = database.jobs
    if any(jobs.unended.get(step_id) for step_id in flow.steps):
        return 0
    ids = [job_id for step_id in flow.steps for job_id in jobs.members.get(step_id, ())]
    for job_id in ids:
        database.delete_job(job_id)
    for step_id in flow.steps:
        database.put(database.steps, step_id, None)
    database.put(database.flows, flow.id, None)
    return len(ids)
