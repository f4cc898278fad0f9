"""Events of jobs and their attempts."""

from __future__ import annotations

from jobpool.core.events.event import Event, Level
from jobpool.core.jobs.budget import Spent
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome


class JobSucceeded(Event, frozen=True, kw_only=True):
    """An attempt succeeded and its result is stored."""

    name = "job_succeeded"

    id: int
    kind: str
    slot: str
    attempt: int
    max_attempts: int | None = None
    duration_s: float | None = None
    peak_rss_bytes: int | None = None
    trace_id: str | None = None
    """The trace that the attempt is in; None: it is in none."""


class JobFailure(Event, frozen=True, kw_only=True):
    """Common fields of the events of a job that did not succeed."""

    level = Level.WARNING

    id: int
    kind: str
    attempt: int | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    error_class: str | None = None
    error: str | None = None
    """The exception's message: one line, capped."""
    frame: str | None = None
    """The application's own innermost frame: ``/srv/shop/jobs.py:41 charge``."""
    key: str | None = None
    tenant: str | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    trace_id: str | None = None


class JobEnded(JobFailure, frozen=True, kw_only=True):
    """An attempt ended without success; includes what happens to its job."""

    name = "job_ended"

    slot: str | None = None
    """None: it was another supervisor's."""
    state: JobState
    """The job's next state."""
    max_attempts: int | None = None
    spent: tuple[Spent, ...] = ()
    counters_reset: bool = False
    """An operator has retried the job before, which reset its budgets."""
    delay_s: float | None = None
    """Time until it is tried again, if it is."""
    duration_s: float | None = None
    peak_rss_bytes: int | None = None


class JobSnoozed(Event, frozen=True, kw_only=True):
    """An attempt snoozed: nothing is charged, and its job is called again."""

    name = "job_snoozed"

    id: int
    kind: str
    slot: str
    attempt: int
    snoozes: int
    """In a row, including this one."""
    throttles: int = 0
    """It was throttled, so often in a row; 0: it was not, it has snoozed by itself."""
    delay_s: float
    """Time until it is called again."""
    reason: str | None = None
    trace_id: str | None = None


class JobUnfit(Event, frozen=True, kw_only=True):
    """A job's arguments did not fit its handler here; another version's may fit."""

    name = "job_unfit"
    level = Level.WARNING

    id: int
    kind: str
    slot: str
    unknown_for_s: float
    """It is dead if they have fitted no supervisor for this long."""
    reason: str | None = None


class MemorySoftPassed(Event, frozen=True, kw_only=True):
    """An attempt is over its soft memory limit; reported once per attempt."""

    name = "memory_soft_passed"
    level = Level.WARNING

    id: int
    kind: str
    slot: str
    attempt: int
    rss_bytes: int
    soft_bytes: int
    memory_bytes: int
    """The hard limit."""
    raised: bool
    """`SoftMemory` is raised in the handler."""
    trace_id: str | None = None


class JobCompleted(Event, frozen=True, kw_only=True):
    """A job's own transaction has completed it, whatever its attempt's end."""

    name = "job_completed"

    id: int
    token: int
    outcome: Outcome | None = None
    """How the attempt ended afterwards, uncharged; None: normally."""


class JobDead(JobFailure, frozen=True, kw_only=True):
    """A job became dead."""

    name = "job_dead"


class JobQuarantined(JobFailure, frozen=True, kw_only=True):
    """A job was quarantined as a poison pill."""

    name = "job_quarantined"
    level = Level.ERROR


class JobSuspected(Event, frozen=True, kw_only=True):
    """A job was running when its supervisor or host died: it runs alone next."""

    name = "job_suspected"
    level = Level.WARNING

    id: int
    kind: str
    recoveries: int
    """How often a supervisor or host died while it ran alone."""


class JobCleared(Event, frozen=True, kw_only=True):
    """A suspect has been cleared."""

    name = "job_cleared"

    id: int
    kind: str
    ran_s: float | None = None
    """How long it has run, and it still runs; None: its attempt ended."""


class JobOutput(Event, frozen=True, kw_only=True):
    """A line that a handler wrote to stdout or stderr."""

    name = "job_output"

    id: int
    kind: str
    slot: str
    line: str
    trace_id: str | None = None
