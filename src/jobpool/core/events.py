"""The events that a supervisor reports, and the interface of their observers.

An event is data with its time; `event_lines` formats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import ClassVar, Protocol

import msgspec

from jobpool.core.isolation.cgroups import Control
from jobpool.core.jobs.budget import Spent
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.circuit_breaker import BreakerState


class Level(IntEnum):
    """Severity of an event; numbers as in the standard library's logging."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened; a subclass's `name` is its name in logs."""

    name: ClassVar[str] = "event"
    level: ClassVar[Level] = Level.INFO

    at_ms: int
    """Milliseconds since 1970, UTC."""


class Observer(Protocol):
    """Receives events."""

    def observe(self, event: Event) -> None:
        """Handle *event*; must not block, may be called from any thread."""
        ...

    def hears(self, kind: type[Event]) -> bool:
        """Return whether it uses events of this class at all."""
        ...


# -- the supervisor ----------------------------------------------------------------


class SupervisorReady(Event, frozen=True, kw_only=True):
    """All pools are up; jobs are being leased."""

    name = "supervisor_ready"

    pid: int
    run_id: str
    pools: Mapping[str, str]
    """Sizes as written: ``{"cpu": "2..8"}``."""
    store: str
    app: str
    version: str
    cgroup: tuple[Control, ...] = ()
    """Controls in force by cgroup: ``cgroup.kill``, ``memory.max``, ``pids.max``."""
    cgroup_missing: Mapping[Control, str] = {}
    """Why the others are not in force."""


class SupervisorDraining(Event, frozen=True, kw_only=True):
    """No new leases; running attempts get the drain window."""

    name = "supervisor_draining"

    pid: int
    reason: str
    """Its cause: ``SIGTERM``, ``nothing is due``."""
    running: int
    drain_s: float


class SupervisorOutdated(Event, frozen=True, kw_only=True):
    """The store's jobs need newer code; no more leases, and it drains."""

    name = "supervisor_outdated"
    level = Level.ERROR

    pid: int
    version: str
    format: int
    """The highest that its code can honour (`core.formats`); the store's least is
    above it."""


class SupervisorStopped(Event, frozen=True, kw_only=True):
    """All children have ended; the process exits next."""

    name = "supervisor_stopped"

    pid: int
    how: str = "drained"
    """``drained`` or ``stopped``."""
    handed_back: int = 0
    """Attempts that the end of the drain window interrupted."""
    leases_held: int = 0
    """Leases that could not be handed back; the next start reclaims them."""


class IsolationReduced(Event, frozen=True, kw_only=True):
    """A wanted isolation measure is not in force here."""

    name = "isolation_reduced"
    level = Level.WARNING

    pools: tuple[str, ...]
    measure: str
    stops: str
    """What it would prevent."""
    why: str


class Alarm(Event, frozen=True, kw_only=True):
    """A condition that a person must deal with."""

    name = "alarm"
    level = Level.ERROR

    text: str


class RunReclaimed(Event, frozen=True, kw_only=True):
    """A dead supervisor's jobs were reclaimed."""

    name = "run_reclaimed"
    level = Level.WARNING

    run_id: str
    host: str
    pid: int
    handed_back: int
    """Leases whose attempt had not begun."""
    lost: int
    """Attempts that were running; their ends were not seen."""
    killed: int
    """Processes of the dead run that were still alive."""
    presumed: bool = False
    """Its death was not seen, but its leases had expired."""


class StoreTrouble(Event, frozen=True, kw_only=True):
    """The store is unavailable; running jobs go on."""

    name = "store_trouble"
    level = Level.ERROR

    error: str
    again_in_s: float


class StoreBack(Event, frozen=True, kw_only=True):
    """The store is available again."""

    name = "store_back"
    level = Level.WARNING

    away_s: float


class StoreWentBack(Event, frozen=True, kw_only=True):
    """The store holds less than it did: this supervisor ends, and writes nothing."""

    name = "store_went_back"
    level = Level.ERROR

    error: str


class StaleSettlement(Event, frozen=True, kw_only=True):
    """A settlement under a superseded lease was refused; it changed nothing."""

    name = "stale_settlement"
    level = Level.WARNING

    id: int
    token: int
    outcome: Outcome | None


class LeaseFenced(Event, frozen=True, kw_only=True):
    """Jobs were ended because another supervisor may hold their leases by now."""

    name = "lease_fenced"
    level = Level.ERROR

    silent_s: float
    """Time since the last successful renewal was sent."""
    ended: int
    """Attempts that were running."""
    handed_back: int
    """Leases whose attempt had not begun."""
    lapsed: bool = False
    """The leases had expired before it was noticed: others may have taken some."""


class LeaseRegained(Event, frozen=True, kw_only=True):
    """A renewal succeeded again: jobs are being leased."""

    name = "lease_regained"
    level = Level.WARNING

    away_s: float
    """How long no job was leased."""


class StoreConcern(Event, frozen=True, kw_only=True):
    """The database works, but an operator should check it."""

    name = "store_concern"
    level = Level.WARNING

    text: str


class UnknownKind(msgspec.Struct, frozen=True):
    """Due jobs of a kind that this supervisor's application does not know."""

    kind: str
    jobs: int
    oldest_age_s: float


class UnknownKinds(Event, frozen=True, kw_only=True):
    """Due jobs wait for an application that knows them."""

    name = "unknown_kinds"
    level = Level.WARNING

    kinds: tuple[UnknownKind, ...]


# -- schedules ---------------------------------------------------------------------


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


# -- pools and children ------------------------------------------------------------


class ZygoteFailed(Event, frozen=True, kw_only=True):
    """A pool's zygote ended or could not start."""

    name = "zygote_failed"
    level = Level.ERROR

    pool: str
    reason: str
    again_in_s: float | None = None


class PoolResized(Event, frozen=True, kw_only=True):
    """A pool with a size range grew or shrank."""

    name = "pool_resized"

    pool: str
    size_from: int
    size_to: int
    reason: str


class MemoryAwaited(Event, frozen=True, kw_only=True):
    """A job waits because running jobs may already use the whole memory budget."""

    name = "memory_awaited"
    level = Level.WARNING

    pool: str
    id: int
    kind: str
    memory_bytes: int
    """The job's memory limit."""
    used_bytes: int
    """Sum of the running jobs' memory limits."""
    budget_bytes: int


class PoolReloaded(Event, frozen=True, kw_only=True):
    """A pool has reloaded the application and its limits."""

    name = "pool_reloaded"

    pool: str


class PoolsLeft(Event, frozen=True, kw_only=True):
    """The application has kinds in pools that this supervisor does not serve."""

    name = "pools_left"

    pools: Mapping[str, int]
    """The number of kinds in each."""


class PoolUnused(Event, frozen=True, kw_only=True):
    """This supervisor serves a pool that no kind of the application uses."""

    name = "pool_unused"
    level = Level.WARNING

    pool: str
    hint: str


class ChildStarted(Event, frozen=True, kw_only=True):
    """A child was forked; it sets itself up next."""

    name = "child_started"
    level = Level.DEBUG

    slot: str
    pid: int


class ChildEnded(Event, frozen=True, kw_only=True):
    """A child has ended and was reaped."""

    name = "child_ended"
    level = Level.DEBUG

    slot: str
    pid: int
    jobs: int
    reason: str


# -- jobs --------------------------------------------------------------------------


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
    delay_s: float
    """Time until it is called again."""
    reason: str | None = None


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


class KindSlowed(Event, frozen=True, kw_only=True):
    """Jobs of a kind crash in a row: they begin less often, one at a time."""

    name = "kind_slowed"
    level = Level.ERROR

    kind: str
    state: BreakerState
    crashes: int
    """Different jobs in a row."""
    again_in_s: float


class KindResumed(Event, frozen=True, kw_only=True):
    """The jobs of a kind begin normally again."""

    name = "kind_resumed"
    level = Level.WARNING

    kind: str
    reason: str


class QuotasHeldBack(Event, frozen=True, kw_only=True):
    """Jobs with quotas do not begin while supervisors run that do not know quotas."""

    name = "quotas_held_back"
    level = Level.WARNING

    kinds: tuple[str, ...]
    """Those that have to wait; empty: all, for the sake of tenants."""
    reason: str


class QuotaDiffers(Event, frozen=True, kw_only=True):
    """Supervisors define a quota, or what a tenant may use, in different ways."""

    name = "quota_differs"
    level = Level.WARNING

    quota: str
    reason: str
    """Who says what, and what holds."""


class RateTooTight(Event, frozen=True, kw_only=True):
    """No job of a kind begins: its leases take longer than its rate can wait."""

    name = "rate_too_tight"
    level = Level.WARNING

    kind: str
    late_s: float
    """From the request for leases until its last job went back unbegun."""
    begin_within_s: float
    """It had to begin within this time of the request, in which what it was given more
    for a slow store is counted."""


class DownstreamOpened(Event, frozen=True, kw_only=True):
    """The breaker of a quota's service has opened: nothing begins for a pause."""

    name = "downstream_opened"
    level = Level.ERROR

    quota: str
    is_one_of_many: bool
    """It is that of one bucket. Which one is not in the log: the quota may count by an
    argument that is hidden."""
    requests: int
    """In the rule's window; or those of a probe."""
    failures: int
    until_ms: int


class DownstreamClosed(Event, frozen=True, kw_only=True):
    """A probe was answered: what needs a quota's service begins normally again."""

    name = "downstream_closed"
    level = Level.WARNING

    quota: str
    is_one_of_many: bool


class JobOutput(Event, frozen=True, kw_only=True):
    """A line that a handler wrote to stdout or stderr."""

    name = "job_output"

    id: int
    kind: str
    slot: str
    line: str


# -- the log itself ----------------------------------------------------------------


class LinesDropped(Event, frozen=True, kw_only=True):
    """The log could not keep up with the events."""

    name = "lines_dropped"
    level = Level.WARNING

    lines: int
