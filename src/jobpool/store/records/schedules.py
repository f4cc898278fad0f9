"""Records of schedules and their ticks."""

from __future__ import annotations

import msgspec

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.schedules.schedule import Declared, TickState


class TickRow(msgspec.Struct, frozen=True, kw_only=True):
    """One nominal time of a schedule."""

    nominal_ms: int
    stored_ms: int
    """The store's clock when it was decided on."""
    state: TickState
    job_id: int | None = None
    job_state: JobState | None = None
    """Its job's, or how that had ended before it was deleted; None: it has no job, or
    nobody has seen how it ended."""
    backfilled: bool = False
    ended_ms: int | None = None


class JobTick(msgspec.Struct, frozen=True, array_like=True):
    """The tick of a schedule that a job is of."""

    schedule: str
    """Its name."""
    nominal_ms: int
    tz: str
    """The schedule's zone."""
    backfilled: bool = False


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as stored."""

    declared: Declared
    """As an application declares it, or as it was put."""
    application: str | None
    """Which has declared it; None: it was put."""
    app_version: str | None
    """Of the application's code that has declared it so."""
    since_ms: int
    """When it got its rule."""
    updated_ms: int
    """When it last became what it is."""
    last_ms: int | None
    """Its times up to then have been dealt with."""
    next_ms: int | None
    """When a step looks at it: at its next tick, as soon as it has been planned, or at
    the end of its pause; None: not before a job has ended, or while it is paused."""
    missed: int
    """How many of its ticks were missed so far, and got no job."""
    retired_ms: int | None = None
    """Since when its application does not declare it any more."""
    paused_ms: int | None = None
    paused_until_ms: int | None = None
    """None: until it is resumed."""
    paused_by: str | None = None
    note: str | None = None
    last_tick: TickRow | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody should know of a schedule after a step."""

    name: str
    missed: int = 0
    """So many ticks were passed over."""
    late_ms: int = 0
    """The latest of its ticks was stored so long after it was due."""
    paused: str | None = None
    """It was paused, for this reason."""
    unplanned: str | None = None
    """This host cannot plan it, for this reason; others may."""


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of `Store.tick` has done."""

    enqueued: int = 0
    skipped: int = 0
    buffered: int = 0
    """They wait for the end of a job."""
    missed: int = 0
    """They got no job, since it was too late for them."""
    canceled: int = 0
    """Jobs that were canceled, or will be, for a later tick."""
    next_due_in_s: float | None = None
    """When to call again at the latest; 0: at once, there is more; None: nothing is
    scheduled."""
    notices: tuple[Notice, ...] = ()


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the schedules that an application declares, by name."""

    is_newest: bool = True
    """False: newer code of the application is living; nothing was changed."""
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Others have schedules of these names: those stay as they are."""
