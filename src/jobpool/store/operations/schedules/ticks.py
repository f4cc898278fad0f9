"""Ticks of schedules as rows: told with leases, read for a step, deleted with jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from jobpool.core.jobs.job import Lease
from jobpool.core.rules.schedules.schedule import Progress, TickState
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import LeaseRow
from jobpool.store.statements.schedules import (
    EndedTick,
    StoredTick,
    is_tick,
    scheduled_from,
    stored_tick,
)
from jobpool.store.statements.session import Session


def with_ticks(
    session: Session, rows: Sequence[LeaseRow], leases: tuple[Lease, ...]
) -> tuple[Lease, ...]:
    """Return leases, of which those of ticks say so; others cost no query."""
    ticks = {row.id: row.tick for row in rows if isinstance(row.tick, int)}
    if not ticks:
        return leases
    now_ms = leases[0].leased_at_ms
    told = {
        tick_id: scheduled_from(*row, now_ms=now_ms)
        for tick_id, *row in session.rows("scheduled", ids=as_json(ticks.values()))
    }
    return tuple(
        msgspec.structs.replace(one, schedule=told.get(ticks[one.id]))
        if one.id in ticks
        else one
        for one in leases
    )


def forget_ticks(session: Session, ids: str) -> None:
    """Delete the ticks of jobs that are about to be deleted.

    The last one of a schedule stays, and says how its job has ended.

    Args:
        session: in a transaction in which the jobs are locked.
        ids: the jobs', as JSON.
    """
    old: list[int] = []
    last: list[EndedTick] = []
    for tick_id, state, ended_ms, is_open, is_last in session.rows(
        "ticks_of_jobs", ids=ids
    ):
        if not is_last:
            old.append(tick_id)
        elif is_open:
            last.append(EndedTick(tick_id, TickState.DONE, state, ended_ms))
    if last:
        session.run("end_ticks", rows=as_json(last))
    if old:
        session.run("delete_old_ticks", ids=as_json(old))


def open_ticks(
    session: Session, schedules: Collection[int], hold_retries: str | None
) -> Mapping[int, Sequence[StoredTick]]:
    """Return the ticks that have not ended, by schedule.

    Args:
        session: in a transaction in which the schedules are locked.
        schedules: their ids.
        hold_retries: the query that locks jobs that wait for a retry, where there are
            other writers. Whoever holds another one may be about to run it.
    """
    rows = session.rows("open_ticks", ids=as_json(schedules))
    if damaged := [row[0] for row in rows if not is_tick(row)]:
        session.run("delete_old_ticks", ids=as_json(damaged))
    ticks = [stored_tick(row) for row in rows if is_tick(row)]
    retrying = [t.job_id for t in ticks if t.progress is Progress.RETRYING]
    if hold_retries and retrying:
        held = {i for (i,) in session.rows(hold_retries, ids=as_json(retrying))}
        ticks = [
            tick._replace(progress=Progress.RUNNING)
            if tick.progress is Progress.RETRYING and tick.job_id not in held
            else tick
            for tick in ticks
        ]
    found: defaultdict[int, list[StoredTick]] = defaultdict(list)
    for tick in ticks:
        found[tick.schedule].append(tick)
    return found


def known_times(
    session: Session, new: Sequence[tuple[int, int]]
) -> Mapping[int, Collection[int]]:
    """Return which nominal times have a tick already, by schedule.

    Args:
        session: in a transaction in which the schedules are locked.
        new: schedules, each with a time.
    """
    found: defaultdict[int, set[int]] = defaultdict(set)
    rows = session.rows("known_ticks", rows=as_json(new)) if new else ()
    for schedule, at_ms in rows:
        found[schedule].add(at_ms)
    return found
