"""Job, Attempt, Lease, Settlement: the records that cross jobpool's seams.

Times are integers: milliseconds since 1970, UTC, by the store's clock. A field
that ends in ``_s`` is in seconds, ``_bytes`` in bytes. Payloads, results,
checkpoints and progress are bytes that hold JSON; nothing here decodes them.

Those that come by the thousand are no garbage collector's (``gc=False``): they hold
nothing that could lead back to them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from jobpool.core.jobs.budget import Spent
from jobpool.core.jobs.outcome import Charge, Outcome

PRIORITY_MIN, PRIORITY_MAX = -32768, 32767
HISTORY_MAX = 1000
"""A lease tells of so many earlier attempts, the newest ones."""
TIME_MAX_MS = 253_402_300_799_000
"""The end of year 9999, the last moment that Python's datetime can hold."""


class JobState(StrEnum):
    """Where a job stands, as stored."""

    PENDING = "pending"
    """Not due yet; shown as ``retryable`` once it has been attempted."""
    RUNNABLE = "runnable"
    """Due, and waiting for a slot."""
    LEASED = "leased"
    """Granted to one supervisor under a token."""
    SUCCEEDED = "succeeded"
    """Its handler returned. Final."""
    DEAD = "dead"
    """Attempts used up, or the handler gave up. Final until an operator retries."""
    QUARANTINED = "quarantined"
    """A poison pill set aside. Final until an operator releases it."""
    CANCELED = "canceled"
    """Canceled, or expired before it started. Final until an operator retries."""


UNFINISHED = (JobState.PENDING, JobState.RUNNABLE, JobState.LEASED)
FINISHED = (
    JobState.SUCCEEDED,
    JobState.DEAD,
    JobState.QUARANTINED,
    JobState.CANCELED,
)


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be stored. Relative times are counted by the store's clock."""

    kind: str
    pool: str
    payload: bytes
    """JSON object: the arguments by name."""
    priority: int = 0
    """Higher is more important."""
    delay_ms: int = 0
    """Due so long after it is stored; ignored when run_at_ms is given."""
    run_at_ms: int | None = None
    expires_in_ms: int | None = None
    """Canceled if no attempt has begun so long after it is stored."""
    key: str | None = None
    """Idempotency key, unique within the kind until the job is pruned."""
    unique: str | None = None
    """At most one unfinished job of the kind has it."""
    tenant: str | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None


class Enqueued(msgspec.Struct, frozen=True):
    """The store's answer for one NewJob, in the order asked."""

    id: int
    created: bool
    """False: an existing job with this key or unique text is returned instead."""
    state: JobState


class PastAttempt(msgspec.Struct, frozen=True, array_like=True):
    """What the retry policy must know of an earlier attempt since the last reset."""

    outcome: Outcome
    rule: str | None
    """The retry rule that it was counted under, if one matched."""
    finished_at_ms: int


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The grant of one attempt to one supervisor.

    It has so many fields that naming each takes longer than the rest of its making.
    """

    id: int
    token: int
    """Strictly growing over all leases of a store; goes with every write."""
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
    """Attempts in a row before this one that said "not yet"."""
    snoozed_since_ms: int | None = None
    """The store's clock when the first of them did."""
    priority: int = 0
    key: str | None = None
    tenant: str | None = None
    unfit: bool = False
    """Its arguments did not fit what a supervisor knows its kind by."""

    @property
    def was_revived(self) -> bool:
        """Whether an operator has begun its budgets anew: attempts are missing."""
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
    """Tail of what it wrote to stdout and stderr."""
    stack: str | None = None
    """Python stacks at the kill or the fatal signal."""
    slot: str | None = None


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of one lease, to be written once under its token."""

    id: int
    token: int
    state: JobState
    """The job's next state."""
    outcome: Outcome | None = None
    """None: the attempt does not count: it never began, or it snoozed."""
    snoozed: bool = False
    """It said "not yet"."""
    unknown_for_ms: int | None = None
    """The job's arguments did not fit: it is handed back instead, unless they have
    fitted nobody for so long (`core.misfit`)."""
    fits: bool = False
    """They did fit, which somebody else has denied."""
    charge: Charge = Charge()
    spent: tuple[Spent, ...] = ()
    """What the charge makes of the job's budgets, for people."""
    delay_ms: int = 0
    """When the next state is pending: due so long after the settlement."""
    result: bytes | None = None
    rule: str | None = None
    evidence: Evidence = Evidence()
    completed: bool = False
    """The handler has called `complete`: if its transaction was committed, that
    stands, and this settlement, an unsuccessful one, is charged to nobody."""
    followup: NewJob | None = None
    """A hook's job, stored in the same transaction if the settlement is accepted."""
    suspect: bool | None = None
    """The job is a suspect from now on, or no more; None: as it was."""
    began_s: float | None = None
    """When the attempt began, by this machine's `Clock.boottime_s`."""
    ended_s: float | None = None
    """When it ended, likewise; None, as the beginning then: nobody saw it."""


class Start(NamedTuple):
    """An attempt that has begun and goes on."""

    id: int
    token: int
    slot: str
    began_s: float
    """By this machine's `Clock.boottime_s`."""


class Progress(msgspec.Struct, frozen=True):
    """What is known of a running attempt; None leaves what is stored."""

    id: int
    token: int
    progress: bytes | None
    checkpoint: bytes | None
    rss_bytes: int | None = None
    """Of its process tree, as it was seen last."""
    output: bytes | None = None
    """The tail of what it has written so far."""


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


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as stored, without its payload. Figures are of its last attempt."""

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
    """What the job itself asked for; None: the kind's."""
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
    """Attempts in a row that said "not yet" (`jobpool.Snooze`), up to now."""
    snoozed_since_ms: int | None = None
    """When the first of them did."""
    unfit_since_ms: int | None = None
    """Since when its arguments are known not to fit what a supervisor knows."""
    rss_bytes: int | None = None
    """Memory of the attempt that runs, as last seen."""

    @property
    def shown_state(self) -> str:
        """The state in words: ``retryable`` for a pending job once attempted."""
        if self.state is JobState.PENDING and self.attempt:
            return "retryable"
        return self.state.value
