"""Events of schedules and their ticks."""

from __future__ import annotations

from jobpool.core.events.event import Event, Level


class SchedulesChanged(Event, frozen=True, kw_only=True):
    """The schedules that the application declares are not those that were stored."""

    name = "schedules_changed"

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()


class ScheduleRefused(Event, frozen=True, kw_only=True):
    """A schedule has no ticks here."""

    name = "schedule_refused"
    level = Level.ERROR

    schedule: str
    reason: str


class SchedulePaused(Event, frozen=True, kw_only=True):
    """A schedule was paused because one of its jobs is dead, or it cannot be read."""

    name = "schedule_paused"
    level = Level.ERROR

    schedule: str
    reason: str


class TicksMissed(Event, frozen=True, kw_only=True):
    """No supervisor was up when a schedule's ticks were due."""

    name = "ticks_missed"
    level = Level.WARNING

    schedule: str
    missed: int = 0
    """They get no job."""
    late_s: float = 0.0
    """The latest of those that got one was enqueued so long after it was due."""
