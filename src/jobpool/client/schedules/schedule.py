"""Schedules and their ticks, as a store knows them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from jobpool.core.rules.schedules.zone import local_time
from jobpool.operations.schedules import outlook

if TYPE_CHECKING:
    from jobpool.store.records.schedules import ScheduleRow, TickRow

_SHOWN = 3
"""Times that a `Schedule` has."""


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """One time of a schedule, and what came of it."""

    at: datetime
    """Its nominal time, in the schedule's zone."""
    state: str
    """``buffered``: it waits for the end of another one's job. ``open``: it has a job.
    ``done``: that has ended. ``skipped``: it got none."""
    job_id: int | None
    """The job, which may have been pruned since; None: it has none."""
    job_state: str | None
    """The job's state, or how it had ended before it was pruned; None: it has none, or
    nobody has seen how it ended."""
    backfilled: bool
    """It was caught up with, or asked for, when its time was over."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as stored.

    Its times are in its zone, or in UTC where this host does not know that.
    """

    name: str
    kind: str
    """Of the handler that its jobs run."""
    pool: str
    when: str
    """In words: ``every 30s``, ``at 02:00 every day, Europe/Berlin``."""
    tz: str
    """Its zone."""
    next: tuple[datetime, ...]
    """Its next three times. There are none while it is paused without an end, retired,
    or waits for the end of its job, and where this host does not know its zone."""
    last: Tick | None
    """Its newest tick."""
    missed: int
    """How many ticks got no job so far because no supervisor was there for them."""
    application: str | None
    """The application whose code declares it; None: it was put."""
    tenant: str | None
    """On whose behalf its jobs run."""
    paused: bool
    paused_until: datetime | None
    """None: until it is resumed, or it is not paused."""
    paused_by: str | None
    note: str | None
    """Why it is paused."""
    retired: datetime | None
    """Since when its application does not declare it any more; it has no ticks."""


def schedule_of(row: ScheduleRow, now_ms: int) -> Schedule:
    """Return a stored schedule for callers.

    Args:
        row: as stored.
        now_ms: the time.
    """
    declared = row.declared
    seen = outlook(row, now_ms, _SHOWN)
    return Schedule(
        name=declared.name,
        kind=declared.kind,
        pool=declared.pool,
        when=seen.when,
        tz=declared.rule.tz,
        next=tuple(local_time(at_ms, seen.tz) for at_ms in seen.upcoming_ms),
        last=None if row.last_tick is None else tick_of(row.last_tick, seen.tz),
        missed=row.missed,
        application=row.application,
        tenant=declared.tenant,
        paused=row.paused_ms is not None,
        paused_until=_local(row.paused_until_ms, seen.tz),
        paused_by=row.paused_by,
        note=row.note,
        retired=_local(row.retired_ms, seen.tz),
    )


def tick_of(row: TickRow, tz: str) -> Tick:
    """Return a stored tick for callers, in a zone."""
    return Tick(
        at=local_time(row.nominal_ms, tz),
        state=row.state.value,
        job_id=row.job_id,
        job_state=None if row.job_state is None else row.job_state.value,
        backfilled=row.backfilled,
    )


def _local(at_ms: int | None, tz: str) -> datetime | None:
    return None if at_ms is None else local_time(at_ms, tz)
