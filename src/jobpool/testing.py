"""For applications' tests: a handler's surroundings without a supervisor.

`running` gives a handler that is called directly something to heartbeat to;
`run_now` sends arguments and result through JSON as a real job would;
`FakeClock` is time that the test moves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

from jobpool.client.gateway import find_settings
from jobpool.client.handler import Handler
from jobpool.client.invoke.invocation import call
from jobpool.client.payload.results import encode_result
from jobpool.client.payload.strict_json import NotJson, encode
from jobpool.core.application.current import (
    AttemptLimits,
    Current,
    channel,
    current,
    enter,
)
from jobpool.core.clock import SystemClock
from jobpool.core.config.settings import QUEUE_DEPTH_MAX
from jobpool.core.jobs.job import Enqueued, Job, NewJob
from jobpool.core.units import DurationLike, SizeLike, duration_s, size_bytes
from jobpool.errors import ArgumentsRejected, Superseded, UsageError
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore

P = ParamSpec("P")

__all__ = ["Beat", "Completion", "FakeClock", "Rehearsal", "run_now", "running"]


class Beat(NamedTuple):
    """One heartbeat as the handler sent it."""

    progress: Any
    checkpoint: Any


class Completion(NamedTuple):
    """A call of ``complete`` as the handler made it; nothing was written."""

    connection: Any
    result: Any


class Rehearsal:
    """What a handler did inside `running`, and what it is told.

    Attributes:
        beats: its heartbeats, in order.
        enqueued: the jobs that it enqueued, in order; they are stored nowhere.
        completion: its call of ``complete``, if it made one.
    """

    def __init__(self, kind: str = "test") -> None:
        self.beats: list[Beat] = []
        self.enqueued: list[NewJob] = []
        self.completion: Completion | None = None
        self._kind = kind
        self._store = MemoryStore(
            MemoryDatabase("rehearsal"),
            clock=SystemClock(),
            queue_depth_max=QUEUE_DEPTH_MAX,
            run_root=Path("/nonexistent"),  # nobody is rung
        )
        self._stopping = False
        self._superseded = False

    def supersede(self) -> None:
        """Take the lease back: ``complete`` raises `jobpool.Superseded` from now on."""
        self._superseded = True

    def stop(self) -> None:
        """Begin a drain: ``jobpool.current().stopping`` is true from now on."""
        self._stopping = True

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Collect jobs as the supervisor would store them; errors as of a store."""
        answers = self._store.enqueue(jobs)
        self.enqueued += [
            job for job, answer in zip(jobs, answers, strict=True) if answer.created
        ]
        return answers

    def read(self, job_id: int) -> Job | None:
        """Return one of the jobs that were enqueued here; none has run."""
        return self._store.get(job_id)

    def beat(self, progress: Any, checkpoint: Any) -> None:
        """Collect a heartbeat; its values must be JSON, as in a child."""
        try:
            encode([progress, checkpoint])
        except NotJson as exc:
            raise ArgumentsRejected(f"heartbeat: {exc}; nothing was sent") from None
        self.beats.append(Beat(progress, checkpoint))

    def complete(self, connection: Any, result: Any) -> None:
        """Note a completion; the result must be storable, as in a child."""
        if self.completion is not None:
            raise UsageError("complete() was called before in this attempt")
        encode_result(result, self._kind, find_settings(None).result_max_bytes)
        if self._superseded:
            raise Superseded("complete(): the test has taken the lease back")
        self.completion = Completion(connection, result)

    def claim(self) -> None:
        """Name no attempt: nothing is written in a rehearsal."""

    def stopping(self) -> bool:
        """Say whether `stop` was called."""
        return self._stopping


@contextmanager
def running(
    *,
    kind: str = "test",
    job_id: int = 1,
    attempt: int = 1,
    token: int = 1,
    timeout: DurationLike = "10m",
    checkpoint: Any = None,
    memory: SizeLike = "512MiB",
    max_attempts: int = 5,
    failures: int = 0,
    tenant: str | None = None,
    key: str | None = None,
    priority: int = 0,
) -> Iterator[Rehearsal]:
    """Make `jobpool.current` work in the block, as if a job were running.

    Args:
        kind: the job's kind.
        job_id: the job.
        attempt: number of the attempt, from 1.
        token: the fencing token.
        timeout: the hard limit, from now; it is only shown, not enforced.
        checkpoint: what an earlier attempt left last.
        memory: its memory limit; it is only shown, not enforced.
        max_attempts: failures until the job is dead.
        failures: of them, those before this attempt.
        tenant: the job's.
        key: the job's.
        priority: the job's.

    Yields:
        What the handler does, as it does it.

    Raises:
        ConfigError: *timeout* is not a duration, or *memory* not a size.
    """
    rehearsal = Rehearsal(kind)
    timeout_s = duration_s(timeout, "timeout")
    attempted = Current(
        job_id=job_id,
        kind=kind,
        attempt=attempt,
        token=token,
        deadline_monotonic_s=time.monotonic() + timeout_s,
        checkpoint=checkpoint,
        channel=rehearsal,
        limits=AttemptLimits(
            timeout_s, size_bytes(memory, "memory"), max_attempts, failures
        ),
        tenant=tenant,
        key=key,
        priority=priority,
    )
    outer_channel, outer = channel(), _current_if_any()
    enter(rehearsal, attempted)
    try:
        yield rehearsal
    finally:
        enter(outer_channel, outer)


def _current_if_any() -> Current | None:
    try:
        return current()
    except UsageError:
        return None


def run_now(handler: Handler[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
    """Run a handler here and now, with all the checks that a real job meets.

    Arguments are checked, encoded and decoded again; so is the result. An async
    handler is run to its end. Nothing is stored, limited or retried.

    Returns:
        The result as ``job.result()`` would give it.

    Raises:
        ArgumentsRejected: the arguments would be refused by ``enqueue``.
        TypeError: the result cannot be stored as JSON.
        ValueError: the result is too large.
        BaseException: whatever the handler raised.
    """
    if not isinstance(handler, Handler):
        raise UsageError(
            f"run_now: expected a handler, got {type(handler).__name__}; decorate the "
            "function with @jobs.job(...) first"
        )
    payload = handler.encode_call(args, kwargs)
    sent_args, sent_kwargs = handler.arguments.decode(payload)
    function: Callable[..., Any] = handler
    result = call(function, sent_args, sent_kwargs)
    most = find_settings(None).result_max_bytes
    return handler.results.decode(handler.results.encode(result, most))


class FakeClock:
    """Time that stands still until the test moves it; a `jobpool.core.clock.Clock`.

    Args:
        utc_ms: where the wall clock begins, in milliseconds since 1970.
    """

    def __init__(self, utc_ms: int = 1_767_225_600_000) -> None:
        self._utc_ms = float(utc_ms)
        self._monotonic_s = 0.0

    def utc_ms(self) -> int:
        """Return the wall clock."""
        return int(self._utc_ms)

    def monotonic_s(self) -> float:
        """Return seconds that only ever grow."""
        return self._monotonic_s

    def boottime_s(self) -> float:
        """Return the same: this machine never sleeps."""
        return self._monotonic_s

    def advance(self, duration: DurationLike) -> None:
        """Let time pass, on both clocks."""
        passed_s = duration_s(duration, "duration")
        self._monotonic_s += passed_s
        self._utc_ms += passed_s * 1000

    def jump(self, seconds: float) -> None:
        """Set the wall clock alone forward or, if negative, back."""
        self._utc_ms += seconds * 1000
