"""The attempt that this process is running, if it is a child of jobpool's.

The child sets it; the client reads it. It is the only thing they share, so that
neither imports the other: outside of a child `channel()` is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from jobpool.core.job import Enqueued, NewJob
from jobpool.errors import UsageError


class Channel(Protocol):
    """What a child can ask of its supervisor."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs; returns after the commit. Errors as of `Store.enqueue`."""
        ...

    def beat(self, progress: Any, checkpoint: Any) -> None:
        """Report that the handler is alive; None leaves a value as it was."""
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
    """

    __slots__ = (
        "_channel",
        "attempt",
        "checkpoint",
        "deadline_monotonic_s",
        "id",
        "kind",
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
    ) -> None:
        self.id = job_id
        self.kind = kind
        self.attempt = attempt
        self.token = token
        self.deadline_monotonic_s = deadline_monotonic_s
        self.checkpoint = checkpoint
        self._channel = channel

    @property
    def stopping(self) -> bool:
        """True once a drain has begun: a long handler should save and end."""
        return self._channel.stopping()

    def heartbeat(self, *, progress: Any = None, checkpoint: Any = None) -> None:
        """Say that the handler is alive and, if given, how far it has come.

        Args:
            progress: JSON value for people, such as ``0.4`` or ``"page 3 of 9"``.
            checkpoint: JSON value that the next attempt receives.

        Raises:
            ArgumentsRejected: a value is not JSON or too large; nothing was sent.
        """
        self._channel.beat(progress, checkpoint)


class _State:
    """One per process; a class so that it is changed without ``global``."""

    channel: Channel | None = None
    current: Current | None = None


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
