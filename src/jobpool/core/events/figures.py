"""Events for those who count or report. They are in no log.

A success is nothing to tell, and a supervisor has thousands a second. So these carry
many at once, and are made only if an observer hears them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobpool.core.application.reports import Report
from jobpool.core.events.event import Event, Level
from jobpool.core.events.jobs import JobEnded
from jobpool.core.jobs.job import Evidence, JobState, Scheduled
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.jobs.trace import TraceContext
from jobpool.core.rules.run_report import RunReport
from jobpool.core.rules.schedules.rule import Rule


class AttemptsSucceeded(Event, frozen=True, kw_only=True, gc=False):
    """Attempts of one kind have succeeded, all in one child."""

    name = "attempts_succeeded"
    level = Level.NOTSET

    kind: str
    pool: str
    durations_s: Sequence[float]
    """Of each attempt; the other figures are in the same order."""
    waits_s: Sequence[float]
    """From when it was due until it began."""
    peaks_bytes: Sequence[int]
    attempts: Sequence[int]
    """Which attempt of its job it was, from 1."""


class AttemptTraced(Event, frozen=True, kw_only=True, gc=False):
    """An attempt of a recorded trace has ended."""

    name = "attempt_traced"
    level = Level.NOTSET

    trace: TraceContext
    """The attempt's own."""
    cause: str | None
    """That in which its job was enqueued, as `core.jobs.trace` has it; None: none."""
    id: int
    kind: str
    pool: str
    slot: str | None
    """None: it was another supervisor's, which has died."""
    attempt: int
    began_ns: int
    """Nanoseconds since 1970, UTC; its clock is of milliseconds."""
    ended_ns: int
    waited_s: float
    """From when it was due until it began."""
    payload_bytes: int
    state: JobState
    """The job's next state."""
    outcome: Outcome | None
    """None: it snoozed."""
    reason: str | None
    error_class: str | None
    error: str | None
    """The exception's message, one line; None: there is none, or it is encoded."""
    signal: int | None
    exit_code: int | None
    peak_rss_bytes: int | None
    cpu_s: float | None


class AttemptUnsuccessful(Event, frozen=True, kw_only=True):
    """An attempt has ended without success, with all that is known of its end."""

    name = "attempt_unsuccessful"
    level = Level.NOTSET

    ended: JobEnded
    """What the log has of it."""
    pool: str
    evidence: Evidence
    """Without what the handler wrote, and without texts that are encoded."""
    cause: str | None
    """As of `AttemptTraced`."""
    trace: TraceContext | None
    """The attempt's own; None: it is in none."""
    app_version: str | None
    report: Report | None = None
    """What an error tracker in its child says of it; None: there is none, or it was
    killed."""


class ReportsLeft(Event, frozen=True, kw_only=True):
    """An error tracker in a child has left reports, whatever became of the attempt."""

    name = "reports_left"
    level = Level.NOTSET

    reports: Sequence[Report]


class TickBegun(Event, frozen=True, kw_only=True):
    """The first attempt of a tick's job has begun."""

    name = "tick_begun"
    level = Level.NOTSET

    id: int
    """The job."""
    tick: Scheduled
    rule: Rule | None
    """Its schedule's; None: the application does not declare it."""


class TickEnded(Event, frozen=True, kw_only=True):
    """The job of a tick has ended."""

    name = "tick_ended"
    level = Level.NOTSET

    id: int
    tick: Scheduled
    rule: Rule | None
    state: JobState
    duration_s: float | None
    """Of its last attempt; None: its end was not seen."""


class SupervisorFigures(Event, frozen=True, kw_only=True):
    """What a supervisor knows of itself, as of a moment; every few seconds."""

    name = "supervisor_figures"
    level = Level.NOTSET

    report: RunReport
    kinds: Mapping[str, Sequence[str]]
    """Those that it runs, by pool."""
    kills: Mapping[str, int]
    """Children that it has killed since its start, by cause."""
    since_lease_s: float | None
    """Time since it was last granted a job; None: it never was."""
