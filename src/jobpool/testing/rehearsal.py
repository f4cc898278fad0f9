"""Handlers run by themselves: `running` answers what they ask, `run_now` checks all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

from jobpool.client.gateway import find_settings
from jobpool.client.handler import Handler
from jobpool.client.invoke.invocation import call
from jobpool.client.payload.results import encode_result
from jobpool.client.payload.strict_json import NotJson, encode
from jobpool.client.quotas.quota import Quota
from jobpool.core.application.current import (
    AttemptLimits,
    Current,
    PermitReply,
    ScheduledTick,
    channel,
    current,
    enter,
)
from jobpool.core.application.step_results import MemberResult
from jobpool.core.clock import SystemClock
from jobpool.core.jobs.flow import EnqueuedFlow, NewFlow
from jobpool.core.jobs.job import Enqueued, Job, NewJob
from jobpool.core.rules.admission import Admission
from jobpool.core.units import DurationLike, SizeLike, duration_s, size_bytes
from jobpool.errors import ArgumentsRejected, Superseded, UsageError
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.protocol import Store

P = ParamSpec("P")


class Beat(NamedTuple):
    """One heartbeat as the handler sent it."""

    progress: Any
    checkpoint: Any


class Completion(NamedTuple):
    """A call of ``complete`` by the handler; nothing was written."""

    connection: Any
    result: Any


class TakenPermit(NamedTuple):
    """A permit that the handler took with ``quota.permit()``."""

    quota: str
    value: str
    """Which bucket, if the quota counts by something; else ""."""
    cost: int


class Block(NamedTuple):
    """An answer that asked for patience; nobody was held back."""

    quota: str
    value: str
    """As in `TakenPermit`."""
    after_s: float


class Request(NamedTuple):
    """A request to a quota's service; no breaker was told."""

    quota: str
    value: str
    """As in `TakenPermit`."""
    failed: bool


class Rehearsal:
    """Records what a handler does inside `running`, and answers it.

    Attributes:
        beats: its heartbeats, in order.
        enqueued: the jobs that it enqueued, in order; they are stored nowhere.
        added: the jobs that it added to its flow, in order.
        flows: the flows that it enqueued, in order; their jobs are among `enqueued`.
        completion: its call of ``complete``, if it made one.
        permits: the permits that it took, in order.
        blocks: what ``permit.answered`` would have told everybody, in order.
        requests: what a breaker would have been told, in order.
    """

    def __init__(
        self,
        kind: str = "test",
        results: Sequence[MemberResult] = (),
        store: Store | None = None,
    ) -> None:
        self.beats: list[Beat] = []
        self.enqueued: list[NewJob] = []
        self.added: list[NewJob] = []
        self.flows: list[NewFlow] = []
        self.completion: Completion | None = None
        self.permits: list[TakenPermit] = []
        self.blocks: list[Block] = []
        self.requests: list[Request] = []
        self._kind = kind
        self._results = results
        self._used_up: dict[str, float] = {}
        self._replies: dict[int, PermitReply] = {}
        self._store = store or MemoryStore(
            MemoryDatabase("rehearsal"),
            clock=SystemClock(),
            admission=Admission(),
            run_root=Path("/nonexistent"),  # there is no supervisor to wake
        )
        self._stopping = False
        self._superseded = False

    def supersede(self) -> None:
        """Take the lease back, so that ``complete`` raises `jobpool.Superseded`."""
        self._superseded = True

    def use_up(self, quota: Quota, retry_in: DurationLike = 1.0) -> None:
        """Let a quota have no permits, so that ``quota.permit()`` raises `Snooze`.

        It does not wait for that.

        Args:
            quota: the quota.
            retry_in: after what time there would be one again.

        Raises:
            ConfigError: *retry_in* is not a duration.
        """
        self._used_up[quota.name] = duration_s(retry_in, "retry_in")

    def stop(self) -> None:
        """Begin a drain, so that ``jobpool.current().stopping`` is true."""
        self._stopping = True

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Collect jobs as a supervisor would store them; errors as for a store."""
        answers = self._store.enqueue(jobs)
        self.enqueued += [
            job for job, answer in zip(jobs, answers, strict=True) if answer.created
        ]
        return answers

    def enqueue_flow(
        self, flow: NewFlow, members: Iterable[tuple[int, NewJob]]
    ) -> EnqueuedFlow:
        """Collect a flow as a supervisor would store it; errors as for a store."""
        given = list(members)
        answer = self._store.enqueue_flow(flow, given)
        if answer.created:
            self.flows.append(flow)
            self.enqueued += [job for _, job in given]
        return answer

    def read(self, job_id: int) -> Job | None:
        """Return a job that was enqueued here; none has run."""
        return self._store.get(job_id)

    def step_results(
        self, numbers: Sequence[int] | None, after_id: int
    ) -> Sequence[MemberResult]:
        """Return what `running` was given as results."""
        del numbers
        return [row for row in self._results if row.job_id > after_id]

    def add_members(self, jobs: Sequence[NewJob]) -> None:
        """Collect jobs that would be added to the flow of the job."""
        self.added += jobs

    def beat(self, progress: Any, checkpoint: Any) -> None:
        """Collect a heartbeat; its values must be JSON, as in a child."""
        try:
            encode([progress, checkpoint])
        except NotJson as exc:
            raise ArgumentsRejected(f"heartbeat: {exc}; nothing was sent") from None
        self.beats.append(Beat(progress, checkpoint))

    def complete(self, connection: Any, result: Any) -> None:
        """Record a completion; the result must be storable, as in a child."""
        if self.completion is not None:
            raise UsageError("complete() was called before in this attempt")
        encode_result(result, self._kind, find_settings(None).result_max_bytes)
        if self._superseded:
            raise Superseded("complete(): the test has taken the lease back")
        self.completion = Completion(connection, result)

    def claim(self) -> None:
        """Return None: nothing is written in a rehearsal."""

    def ask_permit(
        self, quota: str, value: str, cost: int, wait_s: float | None
    ) -> int:
        """Grant a permit, unless `use_up` was called: nobody else takes any."""
        del wait_s
        n = len(self._replies) + 1
        retry_in_s = self._used_up.get(quota)
        self._replies[n] = PermitReply(retry_in_s is None, retry_in_s)
        if retry_in_s is None:
            self.permits.append(TakenPermit(quota, value, cost))
        return n

    def permit_answer(self, n: int, wait_s: float) -> PermitReply:
        """Say whether it was granted."""
        del wait_s
        return self._replies[n]

    def return_permit(self, n: int) -> None:
        """Take it back."""

    def block_bucket(self, quota: str, value: str, after_s: float) -> None:
        """Collect what everybody would be told."""
        self.blocks.append(Block(quota, value, after_s))

    def report_request(self, quota: str, value: str, *, failed: bool) -> None:
        """Collect what a breaker would be told."""
        self.requests.append(Request(quota, value, failed))

    def stopping(self) -> bool:
        """Return whether `stop` was called."""
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
    schedule: ScheduledTick | None = None,
    snoozes: int = 0,
    results: Iterable[tuple[Handler[..., Any], Any]] = (),
) -> Iterator[Rehearsal]:
    """Make `jobpool.current` work in the block, as if a job were running.

    Args:
        kind: the job's kind.
        job_id: the job.
        attempt: number of the attempt, from 1.
        token: the fencing token.
        timeout: the hard time limit, from now; visible but not enforced.
        checkpoint: an earlier attempt's last checkpoint.
        memory: the memory limit; visible but not enforced.
        max_attempts: failures until the job is dead.
        failures: failures before this attempt.
        tenant: the job's.
        key: the job's.
        priority: the job's.
        schedule: the tick that it is of; None: no schedule has made it.
        snoozes: attempts in a row before this one that snoozed.
        results: what ``current().results`` reads: handlers of the steps before it, each
            with what it has returned.

    Yields:
        A record of what the handler does.

    Raises:
        ConfigError: *timeout* is not a duration, or *memory* not a size.
        TypeError: a result cannot be encoded as JSON.
        ResultTooLarge: one is over ``result_max``.
    """
    results = list(results)
    most = find_settings(None).result_max_bytes if results else 0
    rehearsal = Rehearsal(
        kind,
        [
            MemberResult(n, 0, handler.kind, handler.results.encode(value, most))
            for n, (handler, value) in enumerate(results, 1)
        ],
    )
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
        scheduled=schedule,
        snoozes=snoozes,
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
    """Run a handler in this process, with all the checks of a real job.

    Arguments and result are checked, encoded and decoded again. An async handler is
    run to its end. Nothing is stored, limited or retried, and no quota holds it back;
    for ``quota.permit()`` and all else that needs an attempt, call it inside `running`.

    Returns:
        The result as ``job.result()`` would give it.

    Raises:
        ArgumentsRejected: ``enqueue`` would refuse the arguments.
        TypeError: the result cannot be stored as JSON.
        ValueError: the result is too large.
        BaseException: whatever the handler raised.
    """
    if not isinstance(handler, Handler):
        raise UsageError(
            f"run_now: expected a handler, got {type(handler).__name__}; decorate the "
            "function with @jobs.job(...) first"
        )
    job = handler.call(*args, **kwargs).job
    sent_args, sent_kwargs = handler.decode(job)
    function: Callable[..., Any] = handler
    with handler.running(job):
        result = call(function, sent_args, sent_kwargs)
    most = find_settings(None).result_max_bytes
    return handler.results.decode(handler.results.encode(result, most))
