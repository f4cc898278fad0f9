"""Job, Attempt, Lease, Settlement: the records that packages exchange.

Times are integers: milliseconds since 1970, UTC, by the store's clock. A field
that ends in ``_s`` is in seconds, ``_bytes`` in bytes. Payloads, results,
checkpoints and progress are bytes that hold JSON; nothing here decodes them.

Records that come by the thousand are not tracked by the garbage collector
(``gc=False``): they cannot be part of a reference cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from jobpool.core.jobs.budget import Spent
from jobpool.core.jobs.outcome import Charge, Outcome

PRIORITY_MIN, PRIORITY_MAX = -32768, 32767
HISTORY_MAX = 1000
"""Most earlier attempts that a lease carries: the newest ones."""
TIME_MAX_MS = 253_402_300_799_000
"""The end of year 9999, the last moment that Python's datetime can hold."""


class JobState(StrEnum):
    """A job's state, as stored."""

    PENDING = "pending"
    """Not due yet; shown as ``retryable`` once it has been attempted."""
    WAITING = "waiting"
    """Held back until what it depends on has ended: not due, and does not expire."""
    RUNNABLE = "runnable"
    """Due, and waiting for a slot."""
    LEASED = "leased"
    """Leased to one supervisor under a token."""
    SUCCEEDED = "succeeded"
    """Its handler returned. Final."""
    DEAD = "dead"
    """Attempts used up, or the handler gave up. Final until an operator retries."""
    QUARANTINED = "quarantined"
    """Set aside as a poison pill. Final until an operator releases it."""
    CANCELED = "canceled"
    """Canceled, or expired before it started. Final until an operator retries."""


UNFINISHED = (
    JobState.PENDING,
    JobState.WAITING,
    JobState.RUNNABLE,
    JobState.LEASED,
)
FINISHED = (
    JobState.SUCCEEDED,
    JobState.DEAD,
    JobState.QUARANTINED,
    JobState.CANCELED,
)


_ERASED = "its data was erased on "
POSTPONE_MAX_MS = 60_000
"""How long a job is postponed at most, unless it is said otherwise."""


class OnConflict(StrEnum):
    """What an enqueue does if a job has its unique text already."""

    KEEP = "keep"
    """Nothing: that job is the answer."""
    REPLACE = "replace"
    """That job gets the new arguments and options, unless it has begun."""
    POSTPONE = "postpone"
    """The same, and it is due as much later as a new one would be."""


class Debounce(msgspec.Struct, frozen=True):
    """How a job shares its unique text with others."""

    on_conflict: OnConflict = OnConflict.KEEP
    until_start: bool = False
    """The text is free as soon as the job is leased, not only when it has ended."""
    postpone_max_ms: int = POSTPONE_MAX_MS
    """How long after it was created a postponed job is due at the latest."""

    @property
    def revises(self) -> bool:
        """Whether it changes a job that it finds."""
        return self.on_conflict is not OnConflict.KEEP


def erased_reason(now_ms: int) -> str:
    """Return the reason of a job whose row has stayed, without anybody's data in it."""
    return f"{_ERASED}{datetime.fromtimestamp(now_ms / 1000, UTC):%Y-%m-%d}"


def says_erased(reason: object) -> bool:
    """Whether a reason, as stored, is one of `erased_reason`."""
    return isinstance(reason, str) and reason.startswith(_ERASED)


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be stored. Relative times count by the store's clock."""

    kind: str
    pool: str
    payload: bytes
    """JSON object: the arguments by name; encoded, if there is a codec."""
    priority: int = 0
    """Higher is more important."""
    delay_ms: int = 0
    """How long after storing it is due; ignored if run_at_ms is given."""
    run_at_ms: int | None = None
    expires_in_ms: int | None = None
    """How long after storing it is canceled if no attempt has begun."""
    key: str | None = None
    """Idempotency key, unique within the kind until the job is pruned."""
    unique: str | None = None
    """At most one unfinished job of the kind has it."""
    debounce: Debounce | None = None
    """How it shares that; None: it is kept until it has ended."""
    tenant: str | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    codec: str | None = None
    """Name of the codec that its payload has passed through, and what comes of it will;
    None: all of it is plain (`core.application.codec`)."""
    quota_values: Mapping[str, str] | None = None
    """What the quotas of its kind count it by: argument's path to value."""
    trace: str | None = None
    """The trace context in which it is enqueued, as `core.jobs.trace` has it."""
    lane: int | None = None
    """Of its pool, kind, priority, tenant and quota values; None: the store finds it
    out, once quotas concern the kind."""
    same_payloads: tuple[bytes, ...] = ()
    """Not stored: other encodings of its payload that jobs hold keys with, as an
    application that could decode them has found."""


class Enqueued(msgspec.Struct, frozen=True):
    """The store's answer for one NewJob."""

    id: int
    created: bool
    """False: this is an existing job with the same key or unique text."""
    state: JobState
    replaced: bool = False
    """That job has got the new arguments and options."""
    postponed: bool = False
    """It is also due later than it was."""


class PastAttempt(msgspec.Struct, frozen=True, array_like=True):
    """What the retry policy needs of an earlier attempt since the last reset."""

    outcome: Outcome
    rule: str | None
    """The retry rule that it was counted under, if one matched."""
    finished_at_ms: int


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    """The tick of a schedule that a job is of."""

    name: str
    """The schedule's."""
    nominal_ms: int
    """The time that the schedule names: jitter and delays are not in it."""
    tz: str
    """The schedule's zone."""
    late_ms: int
    """How long after it, and after the jitter, this attempt was leased."""
    backfilled: bool = False


class Lease(msgspec.Struct, frozen=True, gc=False):
    """One attempt of a job, granted to one supervisor.

    Not ``kw_only``: with so many fields, keywords are the slowest part of making one.
    """

    id: int
    token: int
    """Grows strictly over all leases of a store; accompanies every write."""
    kind: str
    pool: str
    attempt: int
    """Number of this attempt, from 1."""
    payload: bytes
    checkpoint: bytes | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    recoveries: int = 0
    history: tuple[PastAttempt, ...] = ()
    """Unsuccessful attempts since the last reset, oldest first, the last 1,000."""
    leased_at_ms: int = 0
    """The store's clock when the lease was granted."""
    expires_at_ms: int | None = None
    """The store's clock: a first attempt must have begun by then."""
    suspect: bool = False
    """It may have killed its host: it runs on probation (`core.rules.suspects`)."""
    snoozes: int = 0
    """Attempts in a row before this one that snoozed."""
    snoozed_since_ms: int | None = None
    """The store's clock when the first of them did."""
    priority: int = 0
    key: str | None = None
    tenant: str | None = None
    unfit: bool = False
    """Its arguments did not fit some supervisor's version of its handler."""
    codec: str | None = None
    """As in `NewJob`."""
    due_ms: int = 0
    """The store's clock when it was due; 0: unknown."""
    schedule: Scheduled | None = None
    """The tick that it is, if a schedule has enqueued it."""
    throttles: int = 0
    """Attempts before this one that were throttled, since one has ended otherwise;
    other snoozes neither count nor end the row."""
    throttled_since_ms: int | None = None
    """The store's clock when the first of them was."""
    laned: bool = False
    """It has permits of quotas, which it holds or has used."""
    begin_within_s: float | None = None
    """It must begin within this time of the request for it, or be handed back as
    `Settlement.unbegun`; None: a rate does not say so."""
    step: int | None = None
    """The row of its step, if it is a member of a flow: others may wait for it."""
    trace: str | None = None
    """As in `NewJob`."""

    @property
    def was_revived(self) -> bool:
        """Whether an operator has reset its budgets: attempts are missing."""
        return len(self.history) < min(self.attempt - 1, HISTORY_MAX)


class Evidence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known about the end of one attempt. Texts are capped and marked."""

    reason: str | None = None
    """One line for an engineer at 3 a.m."""
    error_class: str | None = None
    error: str | None = None
    traceback: str | None = None
    signal: int | None = None
    exit_code: int | None = None
    peak_rss_bytes: int | None = None
    cpu_s: float | None = None
    duration_s: float | None = None
    output: str | None = None
    """The last of its stdout and stderr."""
    stack: str | None = None
    """Python stacks at the kill or the fatal signal."""
    slot: str | None = None
    memory_trail: str | None = None
    """Its memory over time, if its child died, as JSON (`memory_trail.Trail`)."""


class Throttle(NamedTuple):
    """Who answers for a quota has said: not before then."""

    quota: str
    value: str
    """Which bucket of it; without `per` it is empty."""
    after_ms: int
    """How long, counted from when it is stored."""


class Throttled(NamedTuple):
    """How often a job was throttled, since one of its attempts has ended otherwise."""

    times: int
    since_ms: int
    """The store's clock at the first time."""


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of one lease, to be written once, under its token."""

    id: int
    token: int
    state: JobState
    """The job's next state."""
    outcome: Outcome | None = None
    """None: the attempt does not count: it never began, or it snoozed."""
    snoozed: bool = False
    unbegun: bool = False
    """It never began: what it has used of rates is given back."""
    throttled: Throttled | None = None
    """Kept with the job until an attempt counts; None: unchanged."""
    throttle: Throttle | None = None
    """Blocks a bucket for everybody, once the settlement is accepted."""
    unknown_for_ms: int | None = None
    """Set if the job's arguments did not fit: the job is handed back instead, until
    no supervisor has fitted it for this long (`core.rules.repairs.misfit`)."""
    fits: bool = False
    """The arguments did fit, after another supervisor found that they do not."""
    charge: Charge = Charge()
    spent: tuple[Spent, ...] = ()
    """The job's budgets after the charge, for people."""
    delay_ms: int = 0
    """How long after the settlement it is due, if the next state is pending."""
    result: bytes | None = None
    rule: str | None = None
    evidence: Evidence = Evidence()
    keeps_output: bool = False
    """The output of a successful attempt is stored too, not only of another one."""
    completed: bool = False
    """The handler has called `complete`: if its transaction was committed, that
    counts, and this unsuccessful settlement charges nothing."""
    followup: NewJob | None = None
    """A hook's job, stored in the same transaction if the settlement is accepted."""
    added: tuple[NewJob, ...] = ()
    """Members that the job, which has succeeded, adds to its own step, likewise."""
    suspect: bool | None = None
    """Whether the job is a suspect from now on; None: unchanged."""
    began_s: float | None = None
    """When the attempt began, by this machine's `Clock.boottime_s`."""
    ended_s: float | None = None
    """When it ended, likewise; both None: it was not seen."""
    app_version: str | None = None
    """Of the application that ran it; None: what its run has published."""

    @property
    def is_charged_retry(self) -> bool:
        """Whether the job is tried again, after an attempt that was charged to it."""
        is_charged = self.charge.failure or self.charge.crash
        return bool(is_charged) and self.state in UNFINISHED


class PermitAsk(NamedTuple):
    """A running attempt asks for a permit, for something that it is about to do."""

    job_id: int
    token: int
    n: int
    """Which permit of this attempt, from 1: asking again for it takes no other."""
    quota: str
    value: str
    """As in `Throttle`."""
    cost: int = 1


class PermitAnswer(NamedTuple):
    """The answer to a `PermitAsk`."""

    granted: bool
    retry_in_s: float | None = None
    """Not granted: when to ask again at the latest; None: nobody knows."""
    stale: bool = False
    """Not granted, and never will be: its token was superseded, or its cost is more
    than the quota can ever give."""


class PermitReturn(NamedTuple):
    """An attempt has done what it had a permit for: it counts for no cap any more."""

    token: int
    n: int


class RequestReport(NamedTuple):
    """An attempt's requests to a quota's service were answered, or have failed."""

    quota: str
    value: str
    """As in `Throttle`."""
    token: int
    """The attempt's."""
    requests: int
    failures: int = 0
    """Those of them that have failed."""


class Start(NamedTuple):
    """A running attempt's beginning."""

    id: int
    token: int
    slot: str
    began_s: float
    """By this machine's `Clock.boottime_s`."""


class Progress(msgspec.Struct, frozen=True):
    """News of a running attempt; None leaves the stored value."""

    id: int
    token: int
    progress: bytes | None
    checkpoint: bytes | None
    rss_bytes: int | None = None
    """Of its process tree, as last sampled."""
    output: bytes | None = None
    """The last of what it has written so far."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One stored attempt that did not succeed."""

    attempt: int
    token: int
    outcome: Outcome
    reason: str | None
    error_class: str | None
    error: str | None
    traceback: str | None
    signal: int | None
    exit_code: int | None
    peak_rss_bytes: int | None
    cpu_s: float | None
    duration_s: float | None
    output: str | None
    stack: str | None
    supervisor: str | None
    slot: str | None
    started_at_ms: int
    finished_at_ms: int
    rule: str | None
    """The retry rule that it was counted under, if one matched."""
    app_version: str | None = None
    """Of the application that ran it."""
    memory_trail: str | None = None
    """As in `Evidence`."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as stored, without its payload. Measurements are its last attempt's."""

    id: int
    kind: str
    pool: str
    state: JobState
    priority: int
    key: str | None
    unique: str | None
    tenant: str | None
    attempt: int
    """Attempts begun so far."""
    max_attempts: int | None
    """The job's own option; None: the kind's applies."""
    failures: int
    crashes: int
    interruptions: int
    recoveries: int
    timeout_s: float | None
    memory_bytes: int | None
    outcome: Outcome | None
    reason: str | None
    error_class: str | None
    error: str | None
    result: bytes | None
    progress: bytes | None
    checkpoint: bytes | None
    created_at_ms: int
    run_at_ms: int
    expires_at_ms: int | None
    started_at_ms: int | None
    finished_at_ms: int | None
    last_heartbeat_at_ms: int | None
    lease_until_ms: int | None
    cancel_requested: bool
    supervisor: str | None
    slot: str | None
    duration_s: float | None
    cpu_s: float | None
    peak_rss_bytes: int | None
    snoozes: int = 0
    """Latest attempts in a row that snoozed (`jobpool.Snooze`)."""
    snoozed_since_ms: int | None = None
    """When the first of them did."""
    unfit_since_ms: int | None = None
    """Since when its arguments are known not to fit some supervisor's handler."""
    rss_bytes: int | None = None
    """Memory of the running attempt, as last sampled."""
    replays: int | None = None
    """The job that this one has replaced, with other arguments or of another kind; it
    may have been pruned."""
    replaced_by: int | None = None
    """The job that has replaced this one, likewise."""
    codec: str | None = None
    """Name of the codec that payload, result, progress, checkpoint and error have
    passed through; None: they are plain."""
    throttles: int = 0
    """How often it was throttled, since one of its attempts has ended otherwise."""
    until_start: bool = False
    """Its unique text is free as soon as it is leased."""
    replacements: int = 0
    """How often enqueues with its unique text have given it other arguments."""
    postponements: int = 0
    """How often it was made due later for that."""
    follows: int | None = None
    """The job that has its unique text, which it gets when that job has ended."""
    followed_by: int | None = None
    """The job that waits for this one in this way."""
    ref: str = ""
    """Its id in a form that cannot be guessed, for URLs (`core.jobs.ref`)."""

    @property
    def is_erased(self) -> bool:
        """Whether its arguments, result and the like were erased."""
        return self.finished_at_ms is not None and says_erased(self.reason)

    @property
    def shown_state(self) -> str:
        """The state as shown: ``retryable`` for a pending job once attempted."""
        if self.state is JobState.PENDING and self.attempt:
            return "retryable"
        return self.state.value
