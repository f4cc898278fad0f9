"""Members of flows that people let run again one by one, or replay."""

from __future__ import annotations

import msgspec

from jobpool.core.rules.lifecycle import JobEvent, after
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.tables.flows import Step
from jobpool.store.memory.tables.rows import Row

_replace = msgspec.structs.replace


def is_settled(database: MemoryDatabase, row: Row) -> bool:
    """Say whether a job is of a step that has ended, or of an external one.

    The one begins anew only by a retry of its flow; the other nobody can run.
    """
    step = _step_of(database, row)
    return step is not None and (
        step.external or (step.hook is None and step.has_ended)
    )


def has_added(database: MemoryDatabase, row: Row) -> bool:
    """Say whether a job has added members to its step, which it would add again."""
    if row.step is None:
        return False
    members = map(database.jobs.__getitem__, database.jobs.members.get(row.step, ()))
    return any(member.added_by == row.id for member in members)


def placed(database: MemoryDatabase, row: Row) -> Row:
    """Return a job that is to run again: of a step that has not ended it waits."""
    step = _step_of(database, row)
    if step is None or step.has_ended:
        return row
    database.note_step(step.id)
    state = after(row.state, JobEvent.HOLD)
    waiting: Row = _replace(row, state=state, run_at_ms=row.created_at_ms)
    return waiting


def _step_of(database: MemoryDatabase, row: Row) -> Step | None:
    return None if row.step is None else database.steps.get(row.step)
