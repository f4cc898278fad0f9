"""The attempt that this process is running, if it is a child of jobpool's.

The child sets it; the client reads it. It is the only thing they share, so that
neither imports the other: outside of a child `channel()` is None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from jobpool.core.jobs.job import Enqueued, Job, NewJob
from jobpool.errors import Superseded, UsageError

T = TypeVar("T")
Restorer = Callable[[], tuple[bytes, bool]]
"""Puts the process back into its first state, between two parts of one attempt.
Returns the tail of what was written to stdout and stderr since the last time, and
whether another part may begin: False when something is left that cannot be undone."""


class Claim(NamedTuple):
    """What a completion names: an attempt, and the store that granted it."""

    store_url: str
    """Without a password: nothing is opened by it."""
    job_id: int
    kind: str
    token: int
    payload_max_bytes: int
    result_max_bytes: int
    queue_depth_max: int

    def superseded(self) -> Superseded:
        """Return what is raised when its token is valid no longer."""
        return Superseded(
            f"job {self.job_id} ({self.kind}) is not this attempt's any more: its "
            f"lease (token {self.token}) was taken back, or the connection is not to "
            f"its store {self.store_url}. Nothing of this transaction is kept; end the "
            "handler"
        )


class AttemptLimits(NamedTuple):
    """What one attempt may use, and how often its job may fail."""

    timeout_s: float
    """Hard: its process tree is killed then."""
    memory_bytes: int
    """Hard, likewise: resident memory of the process tree."""
    max_attempts: int
    """Failures until the job is dead, unless a retry rule has a budget of its own."""
    failures: int
    """Spent by the attempts before this one."""


class Completer(Protocol):
    """What knows connections: the client, once a JobPool was made."""

    def complete(self, connection: Any, claim: Claim, result: Any) -> None:
        """Settle a claimed attempt on a handler's connection, in its transaction."""
        ...

    async def call_async(self, connection: Any, function: Callable[[Any], T]) -> T:
        """Call a function with a synchronous stand-in for an async connection."""
        ...


class Channel(Protocol):
    """What a child can ask of its supervisor."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs; returns after the commit. Errors as of `Store.enqueue`."""
        ...

    def read(self, job_id: int) -> Job | None:
        """Return a job as stored, or None if there is none."""
        ...

    def beat(self, progress: Any, checkpoint: Any) -> None:
        """Report that the handler is alive; None leaves a value as it was."""
        ...

    def complete(self, connection: Any, result: Any) -> None:
        """Settle the attempt as succeeded in the connection's transaction."""
        ...

    def claim(self) -> Claim | None:
        """Name the attempt, for what is written beside it; None: it is a rehearsal."""
        ...

    def stopping(self) -> bool:
        """Say whether the supervisor has begun to drain."""
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
        checkpoint: what an earlier attempt left last, decoded; or None.
        tenant: on whose behalf, as its ``options`` said; or None.
        key: its idempotency key, likewise; or None.
        priority: likewise; 0 unless said.
        limits: what this attempt may use, and how often the job may fail.
    """

    __slots__ = (
        "_channel",
        "attempt",
        "checkpoint",
        "deadline_monotonic_s",
        "id",
        "key",
        "kind",
        "limits",
        "priority",
        "tenant",
        "token",
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
        self._channel = channel

    @property
    def stopping(self) -> bool:
        """True once a drain has begun: a long handler should save and end."""
        return self._channel.stopping()

    def heartbeat(self, *, progress: Any = None, checkpoint: Any = None) -> None:
        """Say that the handler is alive and, if given, how far it has come.

        It is cheap: progress that keeps changing more than twice a second is seen
        twice a second, and the last of it with the end.

        Args:
            progress: JSON value for people, such as ``0.4`` or ``"page 3 of 9"``.
            checkpoint: JSON value that the next attempt receives.

        Raises:
            ArgumentsRejected: a value is not JSON or too large; nothing was sent.
        """
        self._channel.beat(progress, checkpoint)

    def complete(self, connection: Any, result: Any = None) -> None:
        """Settle this job as succeeded within the handler's own transaction.

        The job is done exactly when that transaction commits, so that what the
        handler wrote in it happened exactly once. Call it last, then commit and
        return; what the handler returns afterwards is not stored. If the transaction
        is rolled back, the attempt has failed and the job is tried again.

        Args:
            connection: the handler's own connection to the store's database, with
                its transaction open: psycopg, psycopg2, SQLAlchemy, Django, sqlite3.
            result: JSON value, as a handler would return it.

        Raises:
            Superseded: the lease was taken back: somebody else runs the job. Let the
                transaction fail; on PostgreSQL it can no longer be committed.
            UsageError: the connection cannot be used for this, or it was called
                before in this attempt. Nothing was written.
            TypeError: the result cannot be said in JSON; nothing was written.
            ResultTooLarge: the result is over ``result_max``; nothing was written.
            StoreError: the statement failed; nothing was written.
        """
        self._channel.complete(connection, result)

    async def complete_async(self, connection: Any, result: Any = None) -> None:
        """Do as `complete`, on an asynchronous connection, in an ``async`` handler.

        Args:
            connection: psycopg's AsyncConnection, or SQLAlchemy's AsyncConnection or
                AsyncSession.
            result: as for `complete`, which also says what is raised.
        """
        await completer().call_async(
            connection, lambda stand_in: self._channel.complete(stand_in, result)
        )


class _State:
    """One per process; a class so that it is changed without ``global``."""

    channel: Channel | None = None
    current: Current | None = None
    completer: Completer | None = None
    restorer: Restorer | None = None


def channel() -> Channel | None:
    """Return the way to the supervisor, or None outside of a child."""
    return _State.channel


def current() -> Current:
    """Return the attempt that is being run in this process.

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


def enter(channel: Channel | None, current: Current | None) -> None:
    """Set what this process runs; the child's and the testing tools' only."""
    _State.channel = channel
    _State.current = current


def offer(completer: Completer) -> None:
    """Say how attempts are completed; the client does, when a JobPool is made."""
    _State.completer = completer


def completer() -> Completer:
    """Return how attempts are completed.

    Raises:
        UsageError: no JobPool was made in this process.
    """
    if _State.completer is None:
        raise UsageError(
            "complete() needs a jobpool.JobPool in this process, which knows how to "
            "use connections; this application has none"
        )
    return _State.completer


def offer_restorer(restorer: Restorer) -> None:
    """Say how this process is put back between two parts of an attempt."""
    _State.restorer = restorer


def restore() -> tuple[bytes, bool]:
    """Put this process back between two parts of an attempt, as `Restorer` says.

    Raises:
        UsageError: this is no child of jobpool's.
    """
    if _State.restorer is None:
        raise UsageError("only a child of jobpool's can be put back; this is none")
    return _State.restorer()
