"""The records that go in and out of a store, besides those of `core.jobs.job`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import IntEnum

import msgspec

from jobpool.core.application.redaction import without_redaction
from jobpool.core.formats import FORMAT
from jobpool.core.jobs.job import JobState, Lease, NewJob
from jobpool.core.rules.quotas.breaker import BreakerState
from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.quotas.definition import Limits, Need, Quota, Tenant
from jobpool.core.rules.quotas.rules import Override
from jobpool.core.rules.schedules.schedule import Declared, TickState
from jobpool.core.rules.sketch import Measure


class Renewal(IntEnum):
    """What became of a run's leases when it asked to extend them."""

    ENDED = 0
    """The run has ended: nothing was extended, and it holds no lease any more."""
    HELD = 1
    """They had not run out, and were extended."""
    LAPSED = 2
    """They had run out, and others may have taken some; they were extended only if
    that was asked for."""
    OUTDATED = 3
    """They were extended, but the run's format is below the store's least: it gets no
    more leases, and should end what it has."""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A finished job, and the one that is to replace it."""

    job_id: int
    new: NewJob
    """With the old one's key, tenant and limits."""


class Receipt(IntEnum):
    """What became of one settlement."""

    STALE = 0
    """Its token was superseded; nothing was changed, and it was counted."""
    ACCEPTED = 1
    """It is written."""
    COMPLETED = 2
    """The handler's own transaction had completed the job under this token: that
    stands, and nothing was charged; only the attempt's figures were added."""
    LATER = 3
    """Another open transaction holds the job; nothing was changed: settle again."""
    HANDED_ON = 4
    """The job was handed back instead: its arguments may fit another supervisor."""


class CapacityFact(msgspec.Struct, frozen=True, kw_only=True):
    """What a store was seen to have room for."""

    name: str
    seen: str
    concern: str | None = None
    """What was expected instead, and what to do; None: it is fine."""
    figures: dict[str, float] = {}
    """What was measured, by name with its unit."""


class KeptOutput(msgspec.Struct, frozen=True):
    """What a job's successful attempt has written."""

    attempt: int
    at_ms: int
    """When the attempt ended."""
    output: str | None
    """Its tail; None: it was dropped."""
    dropped_at_ms: int | None
    """When, because newer outputs left no room for it."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One life of one supervisor, from its start to its end."""

    id: str
    """A fresh UUID for every start."""
    host: str
    boot_id: str
    pid: int
    pid_namespace: int
    version: str
    pools: Mapping[str, str] = {}
    """Pool names and sizes as written: ``{"cpu": "2..8"}``."""
    started_at_ms: int = 0
    heartbeat_at_ms: int = 0
    lease_until_ms: int = 0
    ended_at_ms: int | None = None
    format: int = FORMAT
    """The highest format that its code can honour (`core.formats`)."""
    application: str | None = None
    """What it runs, as ``--app`` names it."""
    app_version: str | None = None
    """The version of that: as configured, else a hash of what was imported."""
    limits: Limits = Limits()
    """The quotas that its application and its configuration define."""

    @property
    def label(self) -> str:
        """What it is and where, for messages: ``jobpool 0.3.0 on host a, pid 17``."""
        return label_of(self.version, self.host, self.pid)


def label_of(version: str, host: str, pid: int) -> str:
    """Return what a run is and where, for messages."""
    return f"jobpool {version} on host {host}, pid {pid}"


class Formats(msgspec.Struct, frozen=True, kw_only=True):
    """Which features of newer releases a store may hold (`core.formats`)."""

    least: int
    """Runs of an older format get no leases."""
    wanted: int
    """The highest that has been asked for: above `least` while older runs are open."""
    held_back_by: tuple[Run, ...] = ()
    """Those runs."""


class KindRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A kind as a supervisor has published it."""

    kind: str
    pool: str
    schema: bytes
    """JSON Schema of its arguments object."""
    timeout_s: float
    memory_bytes: int
    max_attempts: int
    max_crashes: int
    updated_at_ms: int = 0
    at_most_once: tuple[str, ...] = ()
    """Its names (its own, its aliases) if its jobs run at most once."""
    needs: tuple[Need, ...] = ()
    """The quotas of which each of its jobs takes a permit when it starts."""

    @property
    def schema_digest(self) -> str:
        """Equal if two supervisors know the kind with the same arguments."""
        arguments = without_redaction(self.schema)
        return hashlib.blake2b(arguments, digest_size=16).hexdigest()


class LeaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of `Store.lease` granted."""

    leases: tuple[Lease, ...] = ()
    next_due_in_s: float | None = None
    """Seconds until the next pending job falls due; None: there is none. 0 when another
    call would find more, or when other transactions hold all runnable jobs."""
    suspects_wait: bool = False
    """Due suspects of these kinds were skipped: it is not their turn yet."""
    lapsed: bool = False
    """The run's own lease has run out: nothing was searched for."""
    outdated: bool = False
    """The run's format is below the store's least: nothing was searched for, and the
    run gets no leases any more."""


class SuspectRow(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An unfinished job that may have killed its host."""

    id: int
    kind: str
    pool: str
    state: JobState
    since_ms: int


class MisfitRow(msgspec.Struct, frozen=True, kw_only=True):
    """Unfinished jobs of one kind whose arguments did not fit some handler."""

    pool: str
    kind: str
    jobs: int
    since_ms: int


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a store has come."""

    now_ms: int
    """Its clock."""
    newest_ms: int | None
    """The newest time of the past that it holds; None: there is none."""
    tokens: int
    """Where its source of tokens stands: a count, without a token's random bits."""
    last_id: int
    """Where its source of job ids stands; a sequence may be ahead of what was given."""
    newest_id: int
    """The id of its newest job, as far as it knows."""
    restores: int
    """How often it was restored from a backup."""


class UnfinishedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Unfinished jobs of one kind and pool."""

    kind: str
    pool: str
    due: int
    """Jobs that are leased or due."""
    later: int
    """Jobs that are not due yet."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs an operator means; every condition that is given must hold."""

    ids: tuple[int, ...] | None = None
    states: tuple[JobState, ...] | None = None
    kind: str | None = None
    pool: str | None = None
    tenant: str | None = None
    key: str | None = None
    """One job of each kind can have it."""
    since_ms: int | None = None
    """Finished (or created, if unfinished) at this moment or later."""


class PauseRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is not leased, since when, and why."""

    what: str
    """``pool``, ``kind``, ``tenant``, ``quota``, or ``store``, without a name."""
    name: str
    since_ms: int | None = None
    """None: as long as an older jobpool has paused it, which kept no more."""
    until_ms: int | None = None
    """None: until it is resumed."""
    who: str | None = None
    note: str | None = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator does to a store; see `Store.audit`."""

    who: str
    role: str
    origin: str
    """From where: a program on a host, or a request."""
    action: str
    target: str
    """JSON object: names, filters, ids; never a payload."""
    jobs: int = 0
    """How many were changed."""
    changed: str | None = None
    """Paths of the arguments that were changed; never their values."""
    note: str | None = None
    """Why, in the operator's words."""


class AuditRow(AuditEntry, frozen=True, kw_only=True):
    """An entry as stored."""

    id: int
    at_ms: int
    """The store's clock when it began."""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are meant; every condition that is given must hold."""

    since_ms: int | None = None
    who: str | None = None
    """Contained in the name."""
    action: str | None = None


class Belongings(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what some jobs have beside their rows."""

    attempts: int
    """Rows of attempts that did not succeed."""
    outputs: int
    """Kept tails of what an attempt has written."""


class StatRow(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and means of one pool, kind and state."""

    pool: str
    kind: str
    state: str
    jobs: int
    mean_wait_s: float | None
    mean_run_s: float | None
    blocked: int = 0
    """Of them: runnable ones that wait for a quota."""


class FigureRow(msgspec.Struct, frozen=True, kw_only=True):
    """Observed use of one kind beside its limits, over its newest 1,000 attempts."""

    kind: str
    pool: str
    attempts: int
    rss_p50_bytes: int | None
    rss_p99_bytes: int | None
    rss_max_bytes: int | None
    memory_bytes: int | None
    """The limit as published by a supervisor; None: no supervisor knows the kind."""
    duration_p50_s: float | None
    duration_p99_s: float | None
    duration_max_s: float | None
    timeout_s: float | None


class SketchRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Attempts of one kind that have used about the same (`core.rules.sketch`)."""

    week: int = 0
    """By the store's clock, counted from 1970."""
    kind: str
    pool: str
    measure: Measure
    bucket: int
    attempts: int
    censored: int = 0
    """Of them: those that were ended there, and would have used more."""


class WaitingRow(msgspec.Struct, frozen=True, kw_only=True):
    """Runnable jobs of one kind."""

    pool: str
    kind: str
    jobs: int
    oldest_age_s: float
    known: bool
    """A supervisor has published this kind."""
    paused: bool
    blocked: int = 0
    """Of them: those that wait for a quota."""


class QuotaRow(msgspec.Struct, frozen=True, kw_only=True):
    """A quota as it is in force, and its use over all buckets."""

    name: str
    quota: Quota | None
    """As published, with the numbers that were set; None: no open run publishes it."""
    override: Override | None = None
    """What was set."""
    differing: str | None = None
    """How definitions differ, and who publishes them; the stricter numbers hold."""
    kinds: tuple[str, ...] = ()
    """Those that need it."""
    used: int = 0
    """Permits in use; of a quota without a cap: 0."""
    waiting: int = 0
    """Runnable jobs that wait for it."""
    blocked: int = 0
    """Its buckets that are full, used up or blocked."""
    bucket: BucketRow | None = None
    """Its bucket, if it has just one; None as well: nothing has used it yet."""
    paused: PauseRow | None = None
    budget: RetryBudget | None = None
    """The rule, if its buckets are a retry budget's; nobody needs it then."""


class ServiceRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the breaker of a bucket has seen of its service."""

    state: BreakerState
    requests: int
    """In its window; 0 unless it is closed."""
    failures: int
    until_ms: int | None = None
    """When its pause ends, if it is open."""
    probe: int | None = None
    """The job that tries the service, if one does."""


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """How a retry budget was used in the last minute."""

    retries: int
    most: int
    """So many retries may begin in a minute, as things are."""
    firsts: int
    """First attempts."""


class BucketRow(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket of a quota."""

    quota: str
    value: str
    """What it is the bucket of; without `per` it is empty."""
    used: int = 0
    """Permits of the cap that are in use; without one: 0."""
    cap: int | None = None
    free: int | None = None
    """Permits of the rate that can be taken now; None: it has none."""
    waiting: int = 0
    """Runnable jobs that wait for it."""
    opens_at_ms: int | None = None
    """When one that waits may get a permit at the earliest; None: at once, or as soon
    as one is returned."""
    blocked_until_ms: int | None = None
    """Somebody has said that nobody may have a permit before then."""
    reason: str | None = None
    """Why there is no permit now; None: there is one."""
    service: ServiceRow | None = None
    """What its breaker has seen of its service; None: it has none."""
    budget: BudgetRow | None = None
    """Its use, if it is a retry budget."""


class QuotaWait(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket that has no permit for a job."""

    quota: str
    value: str
    used: int
    cap: int | None
    holders: tuple[int, ...] = ()
    """Jobs that have permits of its cap, at most ten."""
    opens_at_ms: int | None = None
    """As in `BucketRow`."""
    why: str


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's rule as it is in force, and what it uses."""

    name: str
    tenant: Tenant | None
    """None: it has none, but is paused."""
    is_set: bool = False
    """It was set at run time; else it is published."""
    who: str | None = None
    """Who has set it."""
    updated_at_ms: int | None = None
    """When it was set."""
    used: int = 0
    """Its permits in use."""
    waiting: int = 0
    """Its runnable jobs that wait for the rule."""
    paused: PauseRow | None = None


class FullRow(msgspec.Struct, frozen=True, kw_only=True):
    """What has no room for more jobs; the fields are those of `QueueFull`."""

    what: str
    depth: int
    depth_max: int | None
    age_s: float | None
    age_max_s: float | None
    retry_after_s: float


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that share a kind, a state, and how their last attempt ended."""

    kind: str
    state: str
    reason: str | None
    outcome: str | None
    error_class: str | None
    jobs: int


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
