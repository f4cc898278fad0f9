"""The attempt that this process is running, if it is one of jobpool's children.

The child sets it, the client reads it. They share nothing else, so that neither
imports the other. Outside a child `channel()` is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, overload

import msgspec

from jobpool.core.application.codec import Codec
from jobpool.core.application.step_results import (
    Member,
    MemberResult,
    ReadsResults,
    StepResults,
)
from jobpool.core.jobs.flow import EnqueuedFlow, NewFlow
from jobpool.core.jobs.job import Enqueued, Job, NewJob, Scheduled
from jobpool.core.rules.admission import Admission
from jobpool.errors import Superseded, UsageError

if TYPE_CHECKING:
    from jobpool.core.application.current_flow import CurrentFlow

T = TypeVar("T")
RUN_VARIABLE = "JOBPOOL_RUN"
"""Names the run in the environment of every process that a supervisor starts."""
Restorer = Callable[[], tuple[bytes, bool]]
"""Puts the process back to its baseline, between two parts of one attempt.
Returns the last of what was written to stdout and stderr since the previous call, and
whether another part may begin: False if something is left that cannot be undone."""


class Claim(NamedTuple):
    """An attempt and the store that granted it, as a completion names them."""

    store_url: str
    """Without a password: it is not used to open anything."""
    job_id: int
    kind: str
    token: int
    payload_max_bytes: int
    result_max_bytes: int
    admission: Admission
    codec: Codec | None = None
    """What its result passes through; None: it is stored in plain."""
    pool_names: tuple[str, ...] = ()
    """The pools of its supervisor's configuration."""

    def superseded(self) -> Superseded:
        """Return the error to raise when its token is no longer valid."""
        return Superseded(
            f"job {self.job_id} ({self.kind}) no longer belongs to this attempt: its "
            f"lease (token {self.token}) was taken back, or the connection is not to "
            f"its store {self.store_url}. Nothing of this transaction is kept; end the "
            "handler"
        )


class AttemptLimits(NamedTuple):
    """What one attempt may use, and how often its job may fail."""

    timeout_s: float
    """Hard limit, at which its process tree is killed."""
    memory_bytes: int
    """Hard limit on the resident memory of its process tree."""
    max_attempts: int
    """Failures until the job is dead, unless a retry rule has its own budget."""
    failures: int
    """Failures before this attempt."""


class Delivery(NamedTuple):
    """How a job has come to its attempt, for those who trace messages."""

    pool: str = ""
    waited_s: float = 0.0
    """From when it was due until it was sent to this process."""
    payload_bytes: int = 0
    """Its arguments', as stored."""


class ScheduledTick(NamedTuple):
    """The tick of a schedule that the running job is of."""

    name: str
    """The schedule's."""
    at: datetime
    """Its nominal time, in the schedule's zone. Jitter and delays are not in it, and
    each attempt of the job has the same."""
    late: timedelta = timedelta()
    """How long after it, and after the jitter, this attempt was taken up."""
    backfilled: bool = False
    """It is of the past: caught up with, or asked for."""


class PermitReply(NamedTuple):
    """What came of asking for a permit."""

    granted: bool
    retry_in_s: float | None = None
    """If it is not granted: when it is worth asking again; None: nobody knows."""
    refused: str = ""
    """Why it never will be granted; "": it may be, later."""


class Completer(Protocol):
    """Completes attempts on connections: the client's, once a JobPool exists."""

    def complete(self, connection: Any, claim: Claim, result: Any) -> None:
        """Settle a claimed attempt on a handler's connection, in its transaction."""
        ...

    async def call_async(self, connection: Any, function: Callable[[Any], T]) -> T:
        """Call a function with a synchronous stand-in for an async connection."""
        ...


class Channel(Protocol):
    """What a child can ask of its supervisor."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs; returns after the commit. Errors as for `Store.enqueue`."""
        ...

    def enqueue_flow(
        self, flow: NewFlow, members: Iterable[tuple[int, NewJob]]
    ) -> EnqueuedFlow:
        """Store a flow; returns after the commit. Errors as for `Store.enqueue_flow`.

        Raises:
            UsageError: also if it has over `FLOW_AT_ONCE` members, or more bytes than a
                message may have. Nothing was stored.
        """
        ...

    def read(self, job_id: int) -> Job | None:
        """Return a job as stored, or None if there is none."""
        ...

    def beat(self, progress: Any, checkpoint: Any) -> None:
        """Report that the handler is alive; None leaves a value unchanged."""
        ...

    def step_results(
        self, numbers: Sequence[int] | None, after_id: int
    ) -> Sequence[MemberResult]:
        """Return results of the running job's flow, in order of their jobs' ids.

        Those of members that have succeeded: some, unless there are none left.

        Args:
            numbers: of which steps; None: of those that are before the job's own.
            after_id: only of jobs with higher ids.

        Raises:
            UsageError: the job is in no flow.
            CodecMismatch: one is encoded with another codec or key.
            StoreError: they could not be read.
        """
        ...

    def add_members(self, jobs: Sequence[NewJob]) -> None:
        """Add members to the step of the running job, once its attempt has succeeded.

        Raises:
            UsageError: it is in no flow or was completed, or they are too many; none of
                them was added.
        """
        ...

    def complete(self, connection: Any, result: Any) -> None:
        """Settle the attempt as succeeded in the connection's transaction."""
        ...

    def claim(self) -> Claim | None:
        """Return the attempt's claim; None in a rehearsal, and if none is running."""
        ...

    def ask_permit(
        self, quota: str, value: str, cost: int, wait_s: float | None
    ) -> int:
        """Ask for a permit of a quota's bucket, and return the number of the request.

        Whoever does not wait for the answer, because an exception ends the wait, must
        call `return_permit`.

        Args:
            quota: its name.
            value: what it counts by, as text; "": it has one bucket.
            cost: how much of it.
            wait_s: how long the supervisor may wait until it is free; None: as the
                quota that is in force says.
        """
        ...

    def permit_answer(self, n: int, wait_s: float) -> PermitReply | None:
        """Return the answer to request *n*; None: it has not come within *wait_s*.

        With 0 it does not wait at all. It may return None earlier.
        """
        ...

    def return_permit(self, n: int) -> None:
        """Return a permit that was granted, or take back a request.

        After the attempt's end there is nothing left to return.
        """
        ...

    def block_bucket(self, quota: str, value: str, after_s: float) -> None:
        """Keep everybody from a quota's bucket for this long, within its maximum."""
        ...

    def report_request(self, quota: str, value: str, *, failed: bool) -> None:
        """Count a request to a quota's service, which was answered or has failed.

        After the attempt's end it is not counted any more.
        """
        ...

    def stopping(self) -> bool:
        """Return whether the supervisor has begun to drain."""
        ...


class Current:
    """The running attempt, as `jobpool.current` gives it to its handler.

    Attributes:
        id: the job.
        kind: the job's kind.
        attempt: number of this attempt, from 1.
        token: fencing token; grows with every lease, so that a handler's own
            writes can refuse an older attempt's.
        deadline_monotonic_s: `time.monotonic` value of the hard time limit.
        checkpoint: an earlier attempt's last checkpoint, decoded; or None.
        tenant: on whose behalf it runs, from its ``options``; or None.
        key: its idempotency key, likewise; or None.
        priority: likewise; 0 by default.
        snoozes: how many attempts in a row before this one snoozed.
        limits: what this attempt may use, and how often the job may fail.
        trace: its trace context, as `core.jobs.trace` has it; or None. What it
            enqueues is in the same trace. "": it is in one that is not recorded.
        delivery: how it has come here.
    """

    __slots__ = (
        "_channel",
        "_scheduled",
        "attempt",
        "checkpoint",
        "deadline_monotonic_s",
        "delivery",
        "id",
        "key",
        "kind",
        "limits",
        "priority",
        "snoozes",
        "tenant",
        "token",
        "trace",
    )

    def __init__(
        self,
        *,
        job_id: int,
        kind: str,
        attempt: int,
        token: int,
        deadline_monotonic_s: float,
        checkpoint: Any,
        channel: Channel,
        limits: AttemptLimits,
        tenant: str | None = None,
        key: str | None = None,
        priority: int = 0,
        scheduled: Scheduled | ScheduledTick | None = None,
        snoozes: int = 0,
        trace: str | None = None,
        delivery: Delivery | None = None,
    ) -> None:
        self.id = job_id
        self.kind = kind
        self.attempt = attempt
        self.token = token
        self.deadline_monotonic_s = deadline_monotonic_s
        self.checkpoint = checkpoint
        self.limits = limits
        self.tenant = tenant
        self.key = key
        self.priority = priority
        self.snoozes = snoozes
        self.trace = trace
        self.delivery = delivery or Delivery()
        self._channel = channel
        self._scheduled = scheduled

    @property
    def schedule(self) -> ScheduledTick | None:
        """The tick that a schedule has made this job for; None: it was enqueued.

        Raises:
            ConfigError: this host does not know the schedule's time zone.
        """
        tick = self._scheduled
        if tick is None or isinstance(tick, ScheduledTick):
            return tick
        # 15 ms, which other jobs do not pay.
        from jobpool.core.rules.schedules.zone import local_time  # noqa: PLC0415

        return ScheduledTick(
            tick.name,
            local_time(tick.nominal_ms, tick.tz),
            timedelta(milliseconds=tick.late_ms),
            tick.backfilled,
        )

    @property
    def traceparent(self) -> str | None:
        """W3C's header of this name, for requests that belong to its trace.

        None: it is in none, or in one that is not recorded.
        """
        return self.trace.partition(" ")[0] if self.trace else None

    @property
    def stopping(self) -> bool:
        """True once a drain has begun: a long handler should save its work and end."""
        return self._channel.stopping()

    @property
    def flow(self) -> CurrentFlow:
        """Its flow, to which it may add jobs."""
        # Its imports are for those alone that use it.
        from jobpool.core.application.current_flow import CurrentFlow  # noqa: PLC0415

        return CurrentFlow(self._channel.add_members, self.tenant, self.priority)

    @overload
    def results(self, /) -> StepResults[tuple[Member, Any]]: ...
    @overload
    def results(self, handler: ReadsResults[T], /) -> StepResults[T]: ...
    def results(self, handler: ReadsResults[Any] | None = None, /) -> StepResults[Any]:
        """Return the results of the steps of its flow that are before this job's.

        Those of jobs that have succeeded, in the order in which they were added.

        Args:
            handler: only those of its jobs, of its type. None: of all, each with its
                job, as plain JSON values.

        Returns:
            What can be looped over, again and again; it is read a page at a time.

        Raises:
            UsageError: this job is in no flow.
        """
        if handler is None:
            return StepResults(self._page, _with_member)
        decode = handler.decode_result
        return StepResults(self._page, lambda row: decode(row.result), handler.kinds)

    def _page(self, after_id: int) -> Sequence[MemberResult]:
        return self._channel.step_results(None, after_id)

    def heartbeat(self, *, progress: Any = None, checkpoint: Any = None) -> None:
        """Report that the handler is alive and, optionally, its progress.

        It is cheap: progress is passed on at most twice a second, and its last value
        when the attempt ends.

        Args:
            progress: JSON value for people, such as ``0.4`` or ``"page 3 of 9"``.
            checkpoint: JSON value that the next attempt receives.

        Raises:
            ArgumentsRejected: a value is not JSON or is too large; nothing was sent.
        """
        self._channel.beat(progress, checkpoint)

    def complete(self, connection: Any, result: Any = None) -> None:
        """Settle this job as succeeded within the handler's own transaction.

        The job succeeds if and only if that transaction commits, so that what the
        handler wrote in it happened exactly once. Call it last, then commit and
        return; what the handler returns is then not stored. If the transaction is
        rolled back, the attempt has failed and the job is tried again.

        Args:
            connection: the handler's own connection to the store's database, with
                its transaction open: psycopg, psycopg2, SQLAlchemy, Django, sqlite3.
            result: JSON value, as a handler would return it.

        Raises:
            Superseded: the lease was taken back: another attempt may run the job. Let
                the transaction fail; on PostgreSQL it can no longer be committed.
            UsageError: the connection cannot be used for this, or `complete` was
                called before in this attempt. Nothing was written.
            TypeError: the result cannot be encoded as JSON; nothing was written.
            ResultTooLarge: the result is over ``result_max``; nothing was written.
            StoreError: the statement failed; nothing was written.
        """
        self._channel.complete(connection, result)

    async def complete_async(self, connection: Any, result: Any = None) -> None:
        """Settle this job on an asynchronous connection; otherwise as `complete`.

        Args:
            connection: psycopg's AsyncConnection, aiosqlite's, or SQLAlchemy's
                AsyncConnection or AsyncSession over these.
            result: as for `complete`, whose errors it raises.
        """
        await completer().call_async(
            connection, lambda stand_in: self._channel.complete(stand_in, result)
        )


def _with_member(row: MemberResult) -> tuple[Member, Any]:
    value = None if row.result is None else msgspec.json.decode(row.result)
    return row.member, value


class _State:
    """The process's state; a class, so that it is changed without ``global``."""

    channel: Channel | None = None
    current: Current | None = None
    completer: Completer | None = None
    restorer: Restorer | None = None


def channel() -> Channel | None:
    """Return the channel to the supervisor, or None outside a child."""
    return _State.channel


def current() -> Current:
    """Return the attempt that runs in this process.

    Raises:
        UsageError: no attempt is running here.
    """
    if _State.current is None:
        raise UsageError(
            "jobpool.current() works only inside a handler that jobpool runs; here no "
            "attempt is running. When you call a handler directly (in a test), use "
            "jobpool.testing.running() around the call."
        )
    return _State.current


def entered() -> Current | None:
    """Return the attempt that runs in this process, or None."""
    return _State.current


def enter(channel: Channel | None, current: Current | None) -> None:
    """Set what this process runs; for the child and the testing tools only."""
    _State.channel = channel
    _State.current = current


def set_completer(completer: Completer) -> None:
    """Set how attempts are completed; the client does so when a JobPool is made."""
    _State.completer = completer


def completer() -> Completer:
    """Return how attempts are completed.

    Raises:
        UsageError: no JobPool was made in this process.
    """
    if _State.completer is None:
        raise UsageError(
            "complete() needs a jobpool.JobPool in this process, and this application "
            "has none; create one in the module that --app names"
        )
    return _State.completer


def set_restorer(restorer: Restorer) -> None:
    """Set how this process is put back between two parts of an attempt."""
    _State.restorer = restorer


def restore() -> tuple[bytes, bool]:
    """Put this process back between two parts of an attempt, as `Restorer` says.

    Raises:
        UsageError: this is not one of jobpool's children.
    """
    if _State.restorer is None:
        raise UsageError("only one of jobpool's children can be put back")
    return _State.restorer()
