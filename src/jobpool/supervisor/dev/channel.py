"""What a handler in this process asks of its supervisor: the store answers at once.

Theory of operation. It is the channel that a child has, without the child: the same
requests, rules and refusals. Progress is kept until `flush` writes it, so that a
handler never waits for the disk to report it, nor for a transaction of its own.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from jobpool.core.application.codec import Codec, decode_json
from jobpool.core.application.current import Claim, PermitReply, completer
from jobpool.core.application.step_results import MemberResult, WantedResults
from jobpool.core.config.settings import CHECKPOINT_MAX_BYTES, ClientSettings
from jobpool.core.config.store_url import without_password
from jobpool.core.jobs.flow import EnqueuedFlow, NewFlow
from jobpool.core.jobs.job import (
    Enqueued,
    Job,
    Lease,
    NewJob,
    PermitAnswer,
    PermitAsk,
    PermitReturn,
    Progress,
    RequestReport,
    Throttle,
)
from jobpool.core.rules.flows import check_flow
from jobpool.core.rules.quotas.definition import (
    DEFAULT_THROTTLE_MAX_S,
    DEFAULT_WAIT_S,
)
from jobpool.errors import StoreUnavailable, UsageError
from jobpool.sandbox.child.encoding import PROGRESS_MAX_BYTES, Encoding
from jobpool.sandbox.child.own_end import OwnEnd
from jobpool.store.protocol import Store
from jobpool.supervisor.machine.attempts.permits import CAP_AGAIN_S
from jobpool.supervisor.machine.attempts.running import NO_READING
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.storage.step_results import read_results

T = TypeVar("T")


class UseStore(Protocol):
    """Calls something with the store, in whatever thread has it."""

    def __call__(self, question: Callable[[Store], T], /) -> T:
        """Return what it returns, or raise what it raises."""
        ...


@dataclass(slots=True)
class _Asked:
    """A request for a permit, or the permit that came of it."""

    ask: PermitAsk
    until_s: float
    next_s: float = 0.0
    """When it is worth asking again."""
    is_held: bool = False


class StoreChannel:
    """The channel of one attempt in this process: `core.application.current.Channel`.

    Args:
        use: reaches the store.
        run_id: the run that holds the attempt's lease.
        lease: the attempt's.
        registry: knows quotas and pools.
        settings: the supervisor's.
        encoding: what its progress, checkpoints and result pass through.
        codec: returns the application's codec, for what other jobs have returned.
        stopping: says whether a drain has begun.
        record: has what the attempt reports of itself written.
    """

    waits = True
    """Whether somebody else may return a permit meanwhile."""

    def __init__(
        self,
        use: UseStore,
        run_id: str,
        lease: Lease,
        *,
        registry: Registry,
        settings: ClientSettings,
        encoding: Encoding,
        codec: Callable[[], Codec | None],
        stopping: Callable[[], bool],
        record: Callable[[Progress], None],
    ) -> None:
        self._use = use
        self._run_id = run_id
        self._lease = lease
        self._registry = registry
        self._settings = settings
        self._encoding = encoding
        self._codec = codec
        self._stopping = stopping
        self._record = record
        self._is_closed = False
        self._end = OwnEnd(is_member=lease.step is not None)
        self._numbers = itertools.count(1)
        self._asked: dict[int, _Asked] = {}
        self._guard = threading.Lock()
        self.beat_s = 0.0
        """Monotonic time of the last sign of life; 0: there was none."""
        self._unsent: list[bytes | None] = [None, None]
        """Progress and checkpoint that are not written yet."""

    # -- the end -------------------------------------------------------------------

    @property
    def completed(self) -> bool:
        """Whether `complete` has written; the transaction may still be open."""
        return self._end.completed

    def added(self) -> list[NewJob]:
        """Return what is to be added, now that the attempt has succeeded."""
        return self._end.added()

    def close(self) -> None:
        """Write what is not written, and refuse everything from now on."""
        self._is_closed = True
        self.flush()

    def flush(self) -> None:
        """Have progress and checkpoint written, if they are new; for any thread."""
        with self._guard:
            (progress, checkpoint), self._unsent = self._unsent, [None, None]
        # The handler's own transaction has locked the job's row once it has completed.
        if (progress is not None or checkpoint is not None) and not self.completed:
            lease = self._lease
            self._record(Progress(lease.id, lease.token, progress, checkpoint))

    def _speak(self) -> None:
        if self._is_closed:
            raise UsageError(
                "the attempt that this was asked for has ended, and with it what it "
                "may ask for; a thread of its handler goes on"
            )

    # -- jobs ----------------------------------------------------------------------

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs; see `Channel.enqueue`."""
        self._speak()

        def stored(store: Store) -> list[Enqueued]:
            answers = store.enqueue(jobs)
            store.wake()
            return answers

        return self._use(stored)

    def enqueue_flow(
        self, flow: NewFlow, members: Iterable[tuple[int, NewJob]]
    ) -> EnqueuedFlow:
        """Store a flow; see `Channel.enqueue_flow`."""
        self._speak()
        check_flow(flow)
        given = list(members)

        def stored(store: Store) -> EnqueuedFlow:
            answer = store.enqueue_flow(flow, given)
            store.wake()
            return answer

        return self._use(stored)

    def read(self, job_id: int) -> Job | None:
        """Return a job as stored, or None if there is none; see `Channel.read`."""
        self._speak()
        if not self._registry.may_read(self._lease.pool):
            raise UsageError(NO_READING)
        return self._use(lambda store: store.get(job_id))

    def step_results(
        self, numbers: Sequence[int] | None, after_id: int
    ) -> Sequence[MemberResult]:
        """Return results of the running job's flow; see `Channel.step_results`."""
        self._speak()
        wanted = WantedResults(None if numbers is None else tuple(numbers), after_id)
        rows = self._use(lambda store: read_results(store, self._lease.id, wanted))
        return [self._opened(row) for row in rows]

    def _opened(self, row: MemberResult) -> MemberResult:
        if row.result is None or row.codec is None:
            return row
        result = decode_json(self._codec(), row.result, row.codec)
        return row._replace(result=result, codec=None)

    def add_members(self, jobs: Sequence[NewJob]) -> None:
        """Add members to the step of the running job; see `Channel.add_members`."""
        self._speak()
        self._end.add(jobs)

    def complete(self, connection: Any, result: Any) -> None:
        """Settle the attempt in the connection's transaction; see `Channel`."""
        self._speak()
        claim = self._claim()
        self._end.complete(lambda: completer().complete(connection, claim, result))

    def claim(self) -> Claim | None:
        """Return the attempt's claim."""
        self._speak()
        return self._claim()

    def _claim(self) -> Claim:
        settings, lease = self._settings, self._lease
        return Claim(
            store_url=without_password(settings.store),
            job_id=lease.id,
            kind=lease.kind,
            token=lease.token,
            payload_max_bytes=settings.payload_max_bytes,
            result_max_bytes=settings.result_max_bytes,
            admission=settings.admission,
            codec=self._encoding.codec,
            pool_names=settings.pool_names,
        )

    # -- what it reports -----------------------------------------------------------

    def beat(self, progress: Any, checkpoint: Any) -> None:
        """Report that the handler is alive; None leaves a value as it was."""
        self._speak()
        news = (
            self._encoding.value("progress", progress, PROGRESS_MAX_BYTES),
            self._encoding.value("checkpoint", checkpoint, CHECKPOINT_MAX_BYTES),
        )
        self.beat_s = time.monotonic()
        with self._guard:
            before = self._unsent
            self._unsent = [
                old if new is None else new
                for old, new in zip(before, news, strict=True)
            ]

    def stopping(self) -> bool:
        """Return whether a drain has begun."""
        return self._stopping()

    # -- permits -------------------------------------------------------------------

    def ask_permit(
        self, quota: str, value: str, cost: int, wait_s: float | None
    ) -> int:
        """Ask for a permit, and return the number of the request."""
        self._speak()
        if wait_s is None:
            defined = self._registry.quotas.get(quota)
            wait_s = DEFAULT_WAIT_S if defined is None else defined.wait_s
        n, lease = next(self._numbers), self._lease
        ask = PermitAsk(lease.id, lease.token, n, quota, value, cost)
        self._asked[n] = _Asked(ask, time.monotonic() + (wait_s if self.waits else 0.0))
        return n

    def permit_answer(self, n: int, wait_s: float) -> PermitReply | None:
        """Return the answer to request *n*; None: there is none to be had yet."""
        self._speak()
        asked = self._asked[n]
        if (early_s := asked.next_s - time.monotonic()) > 0:
            time.sleep(min(early_s, wait_s))
            return None
        answer = self._permit(asked.ask)
        if answer.granted:
            asked.is_held = True
            return PermitReply(granted=True)
        if answer.stale:
            quota, cost = asked.ask.quota, asked.ask.cost
            refused = (
                f"a permit of quota {quota} with a cost of {cost} will never be "
                "granted: that is more than the quota has, or the lease of this "
                "attempt was taken back"
            )
            return PermitReply(granted=False, refused=refused)
        again_s = answer.retry_in_s
        asked.next_s = time.monotonic() + (CAP_AGAIN_S if again_s is None else again_s)
        if asked.next_s >= asked.until_s:
            return PermitReply(granted=False, retry_in_s=again_s)
        return None

    def _permit(self, ask: PermitAsk) -> PermitAnswer:
        cap = self._registry.host_caps.get(ask.quota)
        if cap is None:
            try:
                (answer,) = self._use(
                    lambda store: store.take_permits(self._run_id, [ask])
                )
            except StoreUnavailable:
                return PermitAnswer(granted=False)
            return answer
        held = sum(
            one.ask.cost
            for one in self._asked.values()
            if one.is_held and one.ask.quota == ask.quota
        )
        return PermitAnswer(granted=held + ask.cost <= cap, stale=ask.cost > cap)

    def return_permit(self, n: int) -> None:
        """Return a permit that was granted, or take back a request."""
        asked = self._asked.pop(n, None)
        if asked is None or self._is_closed or not asked.is_held:
            return
        if asked.ask.quota not in self._registry.host_caps:
            returned = PermitReturn(self._lease.token, n)
            self._use(lambda store: store.return_permits([returned]))

    def block_bucket(self, quota: str, value: str, after_s: float) -> None:
        """Keep everybody from a quota's bucket for this long, within its maximum."""
        self._speak()
        defined = self._registry.quotas.get(quota)
        most_s = DEFAULT_THROTTLE_MAX_S if defined is None else defined.throttle_max_s
        block = Throttle(quota, value, round(min(after_s, most_s) * 1000))
        self._use(lambda store: store.block_buckets([block]))

    def report_request(self, quota: str, value: str, *, failed: bool) -> None:
        """Count a request to a quota's service, if the quota has a breaker."""
        defined = self._registry.quotas.get(quota)
        if self._is_closed or defined is None or defined.breaker is None:
            return
        report = RequestReport(quota, value, self._lease.token, 1, int(failed))
        self._use(lambda store: store.report_requests([report]))
