"""A running handler's requests to its supervisor: `core.application.current.Channel`.

A channel belongs to one attempt: a thread that outlives its attempt cannot use the next
one's, and a process that the handler forked cannot use any.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jobpool import errors
from jobpool.core.application import current
from jobpool.core.application.codec import Codec, decode_json
from jobpool.core.application.step_results import MemberResult, WantedResults
from jobpool.core.jobs.flow import (
    FLOW_AT_ONCE,
    AskedFlow,
    EnqueuedFlow,
    NewFlow,
)
from jobpool.core.jobs.job import Enqueued, Job, NewJob
from jobpool.core.rules.flows import check_flow
from jobpool.errors import (
    JobpoolBug,
    JobpoolError,
    KeyConflict,
    QueueFull,
    StoreUnavailable,
    UsageError,
)
from jobpool.sandbox.child.encoding import (
    BEAT_EVERY_S,
    PLAIN,
    PROGRESS_MAX_BYTES,
    Encoding,
)
from jobpool.sandbox.child.link import Link, undisturbed
from jobpool.sandbox.child.own_end import OwnEnd
from jobpool.sandbox.protocol.messages import (
    Answer,
    Ask,
    AskPermit,
    Beat,
    BlockBucket,
    FrameError,
    Go,
    RequestEnded,
    ReturnPermit,
    RunJob,
)

BEATS_AT_ONCE = 8
"""A burst of so many is not: a handler's steps before a long silence."""
BEAT_SHARE = 0.02
"""Beats are delayed by at most this share of the heartbeat timeout."""
PERMITS_MAX = 1000
"""Most permits that one attempt holds or waits for at once."""
BESIDE_S = 0.02
"""Another thread may have taken in what this one waits for: it looks so soon."""
_asks = itertools.count(1)


class AttemptChannel:
    """The channel of one running attempt.

    Args:
        link: the child's connection to its supervisor.
        go: the supervisor's first message.
        job: the job of the attempt.
        pid: the child, the only process that may use the channel.
        encoding: what its progress, checkpoints and result pass through.
        codec: returns the application's codec, for what other jobs have returned.
    """

    __slots__ = (
        "_codec",
        "_encoding",
        "_end",
        "_go",
        "_job",
        "_link",
        "_next_beat_s",
        "_permits",
        "_pid",
        "_token",
        "_unsent",
    )

    def __init__(
        self,
        link: Link,
        go: Go,
        job: RunJob,
        pid: int,
        encoding: Encoding = PLAIN,
        *,
        codec: Callable[[], Codec | None] = lambda: None,
    ) -> None:
        self._encoding = encoding
        self._codec = codec
        self._link = link
        self._go = go
        self._job = job
        self._token: int | None = job.token
        self._pid = pid
        self._next_beat_s = 0.0
        """When the next beat is due; a few may be early."""
        self._permits: set[int] = set()
        """Requests for permits that were not refused, returned or given up."""
        self._unsent: bytes | None = None
        """Progress whose beat was delayed."""
        self._end = OwnEnd(is_member=job.is_member)

    def close(self) -> Beat | None:
        """Refuse everything from now on: the attempt has ended.

        Returns:
            A beat that was delayed and not sent.
        """
        token, self._token = self._token, None
        self._link.forget_permits()
        if self._unsent is None or token is None:
            return None
        return Beat(token, self._unsent, None)

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs; returns after the commit.

        Raises:
            JobpoolError: what `Store.enqueue` raises; nothing was stored.
            StoreUnavailable: the supervisor ended before it answered.
            UsageError: called after the attempt's end, or by a forked process.
        """
        return self._asked(list(jobs)).enqueued or []

    def enqueue_flow(
        self, flow: NewFlow, members: Iterable[tuple[int, NewJob]]
    ) -> EnqueuedFlow:
        """Store a flow; returns after the commit.

        Raises:
            JobpoolError: what `Store.enqueue_flow` raises; nothing was stored.
            StoreUnavailable: the supervisor ended before it answered.
            UsageError: as of `enqueue`, or it is too large for one message.
        """
        self._speaker()
        check_flow(flow)
        given = list(itertools.islice(members, FLOW_AT_ONCE + 1))
        if len(given) > FLOW_AT_ONCE:
            raise UsageError(
                f"a flow that a handler enqueues has at most {FLOW_AT_ONCE:,} jobs, "
                f"and {flow.name!r} has more; make several flows of it, or enqueue it "
                "outside handlers. Nothing was stored"
            )
        asked = AskedFlow(flow, tuple(number for number, _ in given))
        stored = self._asked([job for _, job in given], flow=asked).flow
        if stored is None:
            raise JobpoolBug(
                f"the supervisor has not said as what it has stored {flow.name!r}; "
                "please report this"
            )
        return stored

    def read(self, job_id: int) -> Job | None:
        """Return a job as stored, or None if there is none; errors as of `enqueue`."""
        return self._asked([], job_id).found

    def step_results(
        self, numbers: Sequence[int] | None, after_id: int
    ) -> Sequence[MemberResult]:
        """Return results of the job's flow; errors as of `enqueue` and of a codec."""
        steps = None if numbers is None else tuple(numbers)
        rows = self._asked([], results=WantedResults(steps, after_id)).results
        return [self._opened(row) for row in rows]

    def _opened(self, row: MemberResult) -> MemberResult:
        if row.result is None or row.codec is None:
            return row
        result = decode_json(self._codec(), row.result, row.codec)
        return row._replace(result=result, codec=None)

    def add_members(self, jobs: Sequence[NewJob]) -> None:
        """Keep members that are to be stored if the attempt succeeds.

        Raises:
            UsageError: the job is in no flow, `complete` has written, they are too many
                or too large, or as of `enqueue`; none of them was added.
        """
        self._speaker()
        with undisturbed(), self._link.lock:
            self._end.add(jobs)

    def added(self) -> list[NewJob]:
        """Return what is to be added, now that the attempt has succeeded."""
        return self._end.added()

    @property
    def completed(self) -> bool:
        """Whether `complete` has written; the transaction may still be open."""
        return self._end.completed

    def _asked(
        self,
        jobs: list[NewJob],
        reads: int | None = None,
        results: WantedResults | None = None,
        flow: AskedFlow | None = None,
    ) -> Answer:
        token = self._speaker()
        ask = next(_asks)
        with self._link.lock:
            try:
                with undisturbed():
                    self._link.send(Ask(ask, token, jobs, reads, results, flow))
            except FrameError as exc:
                raise UsageError(
                    f"too much in one call: {exc}; enqueue in smaller batches, "
                    "or smaller flows. Nothing was stored"
                ) from exc
            except OSError as exc:
                raise _supervisor_gone() from exc
            answer = self._wait_for(ask)
        if answer.enqueued is None:
            raise _error_of(answer)
        return answer

    def beat(self, progress: Any, checkpoint: Any) -> None:
        """Report that the handler is alive; None leaves a value as it was.

        Raises:
            ArgumentsRejected: a value is not JSON or too large; nothing was sent.
            UsageError: called after the attempt's end, or by a forked process.
        """
        token = self._speaker()
        now_s = time.monotonic()
        silent_s, every_s = self._job.heartbeat_timeout_s, BEAT_EVERY_S
        if silent_s is not None:
            every_s = min(every_s, BEAT_SHARE * silent_s)
        early = now_s + (BEATS_AT_ONCE - 1) * every_s < self._next_beat_s
        encoded = self._encoding.value("progress", progress, PROGRESS_MAX_BYTES)
        kept = self._encoding.value(
            "checkpoint", checkpoint, self._go.checkpoint_max_bytes
        )
        if self.completed:  # only a sign of life: the handler has locked the job's row
            encoded = kept = self._unsent = None
        if encoded is not None:
            self._unsent = encoded
        if early and kept is None:
            return
        message, self._unsent = Beat(token, self._unsent, kept), None
        self._next_beat_s = max(now_s, self._next_beat_s) + every_s
        self._say(message)

    def _say(self, message: Any) -> None:
        try:
            with undisturbed(), self._link.lock:
                self._link.send(message)
        except OSError as exc:
            raise _supervisor_gone() from exc

    def ask_permit(
        self, quota: str, value: str, cost: int, wait_s: float | None
    ) -> int:
        """Ask for a permit, and return the number of the request.

        Raises:
            StoreUnavailable: the supervisor has ended.
            UsageError: called after the attempt's end, by a forked process, or with too
                many permits held or waited for.
        """
        token = self._speaker()
        if len(self._permits) >= PERMITS_MAX:
            raise UsageError(
                f"this attempt holds or waits for {PERMITS_MAX} permits, the most that "
                "one may; return some of them first"
            )
        n = next(_asks)
        self._permits.add(n)
        self._say(AskPermit(token, n, quota, value, cost, wait_s))
        return n

    def permit_answer(self, n: int, wait_s: float) -> current.PermitReply | None:
        """Return the answer about a permit; None: it has not come yet.

        Args:
            n: the number of the request.
            wait_s: how long it may wait; other threads can speak meanwhile.

        Raises:
            StoreUnavailable: the supervisor has ended.
            UsageError: called after the attempt's end, or by a forked process.
        """
        reply = self._reply(n)
        if reply is None and wait_s > 0:
            self._link.wait_beside(min(wait_s, BESIDE_S))
            reply = self._reply(n)
        return reply

    def _reply(self, n: int) -> current.PermitReply | None:
        self._speaker()
        link = self._link
        with undisturbed(), link.lock:
            link.take_in()
            answer = link.permit_answer(n)
        if answer is None:
            if link.ended:
                raise _supervisor_gone()
            return None
        if not answer.granted:
            self._permits.discard(n)
        return current.PermitReply(answer.granted, answer.retry_in_s, answer.refused)

    def return_permit(self, n: int) -> None:
        """Return a permit, or give up a request, if it has not ended with its attempt.

        Raises:
            StoreUnavailable: the supervisor has ended.
        """
        is_held = n in self._permits and os.getpid() == self._pid
        if is_held and self._token is not None:
            self._permits.discard(n)
            self._say(ReturnPermit(self._token, n))

    def block_bucket(self, quota: str, value: str, after_s: float) -> None:
        """Keep everybody from a quota's bucket for this long, within its maximum.

        Raises:
            StoreUnavailable: the supervisor has ended.
            UsageError: called after the attempt's end, or by a forked process.
        """
        self._say(BlockBucket(self._speaker(), quota, value, after_s))

    def report_request(self, quota: str, value: str, *, failed: bool) -> None:
        """Count a request to a quota's service, if its attempt has not ended.

        Raises:
            StoreUnavailable: the supervisor has ended.
        """
        if self._token is not None and os.getpid() == self._pid:
            self._say(RequestEnded(self._token, quota, value, failed))

    def complete(self, connection: Any, result: Any) -> None:
        """Settle the attempt as succeeded in the connection's transaction.

        Raises:
            Superseded: the token is not valid any more; the transaction must fail.
            UsageError: called twice, after the attempt's end, by a forked process, or
                with a connection that cannot be used; nothing was written.
            TypeError: the result is not JSON; nothing was written.
            ResultTooLarge: the result is over ``result_max``; nothing was written.
            StoreError: the statement failed; nothing was written.
        """
        claim = self.claim()
        self._end.complete(
            lambda: current.completer().complete(connection, claim, result)
        )

    def claim(self) -> current.Claim:
        """Identify the attempt.

        Raises:
            UsageError: called after the attempt's end, or by a forked process.
        """
        self._speaker()
        go, job = self._go, self._job
        return current.Claim(
            store_url=go.store_url,
            job_id=job.id,
            kind=job.kind,
            token=job.token,
            payload_max_bytes=go.payload_max_bytes,
            result_max_bytes=go.result_max_bytes,
            admission=go.admission,
            pool_names=go.pool_names,
            codec=self._encoding.codec,
        )

    def stopping(self) -> bool:
        """Say whether the supervisor has begun to drain."""
        link = self._link
        if self._token is not None and os.getpid() == self._pid:
            with undisturbed(), link.lock:
                link.take_in()
        return link.draining or link.retiring or link.ended

    def _speaker(self) -> int:
        """Return the attempt's token, if this caller may use it."""
        if os.getpid() != self._pid:
            raise UsageError(
                "this process was forked by a handler and cannot act for its attempt; "
                "do it in the handler's own process"
            )
        if self._token is None:
            raise UsageError(
                "the attempt has ended; a thread that outlives its handler can do "
                "nothing for it any more"
            )
        return self._token

    def _wait_for(self, ask: int) -> Answer:
        link = self._link
        while True:
            with undisturbed():
                link.take_in()
                answer = link.answer(ask)
            if answer is not None:
                return answer
            if link.ended:
                raise _supervisor_gone()
            link.wait_for_message()


def _supervisor_gone() -> StoreUnavailable:
    return StoreUnavailable(
        "the supervisor is gone, and this process will be ended; the last request may "
        "or may not have been stored"
    )


def _error_of(answer: Answer) -> JobpoolError:
    """Rebuild the error that the supervisor reported."""
    cls = getattr(errors, answer.error_class, None)
    if cls is KeyConflict:
        return KeyConflict(answer.error, answer.job_id, answer.encoded)
    if cls is QueueFull:
        full: dict[str, Any] = answer.full
        return QueueFull(answer.error, **full)
    if isinstance(cls, type) and issubclass(cls, JobpoolError):
        try:
            return cls(answer.error)
        except TypeError:
            pass  # its constructor takes more than a text: named below
    return JobpoolError(f"{answer.error_class}: {answer.error}")
