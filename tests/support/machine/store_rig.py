"""A store thread over a store whose answers the test chooses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobpool.core.clock import Clock, SystemClock
from jobpool.core.jobs.flow import EnqueuedFlow, FlowState, NewFlow
from jobpool.core.jobs.job import (
    JobState,
    Lease,
    NewJob,
    PermitAnswer,
    PermitAsk,
    PermitReturn,
    RequestReport,
    Settlement,
    Throttle,
)
from jobpool.core.rules.quotas.breaker import BreakerChange, BreakerState
from jobpool.store.records.jobs import LeaseBatch, Receipt
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.storage.thread import StoreThread
from support.waiting import wait_until

PATIENCE_S = 30.0


class FakeStore:
    """A store in memory whose answers the test chooses."""

    one_host = False
    run_root = Path("/nowhere")

    def __init__(self) -> None:
        self.receipts: dict[int, list[Receipt]] = {}
        self.settled: list[Settlement] = []
        self.parts_left = 0
        self.parts: list[int] = []
        self.failures: list[Exception] = []
        self.held: list[Lease] = []
        self.grants: list[Lease] = []
        self.opened: frozenset[str] = frozenset()
        self.refused: Exception | None = None
        self.spoilt: list[str] = []
        self.wakes = 0
        self.confirmed = 0
        self.gone: Exception | None = None
        self.closed = False
        self.freed = False
        self.flows: list[tuple[NewFlow, list[tuple[int, NewJob]]]] = []
        self.done: list[tuple[str, object]] = []
        """What was done about permits, by whole transactions."""
        self._is_open = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Fail at the commit, if told to; a method outside commits by itself."""
        if self._is_open:
            yield
            return
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False
        if self.failures:
            raise self.failures.pop(0)

    def settle(self, settlements: Sequence[Settlement]) -> list[Receipt]:
        receipts = [
            (self.receipts.get(s.token) or [Receipt.ACCEPTED]).pop(0)
            for s in settlements
        ]
        gone = {
            s.token
            for s, receipt in zip(settlements, receipts, strict=True)
            if receipt is not Receipt.LATER
        }
        self.held = [lease for lease in self.held if lease.token not in gone]
        self.settled += settlements  # last: tests wait for that
        return receipts

    def lease(
        self,
        *_args: object,
        suspects: bool,
        alone: bool,
        ahead: Mapping[str, int],
        slow_s: float,
    ) -> LeaseBatch:
        assert (suspects, alone, ahead, slow_s) == (True, False, {}, 0.0)
        with self.transaction():
            granted, self.grants = tuple(self.grants), []
            self.held += granted
        return LeaseBatch(leases=granted, opened=self.opened)

    def enqueue(self, _jobs: object) -> list[object]:
        if self.refused is not None:
            raise self.refused
        return []

    def enqueue_flow(
        self, flow: NewFlow, members: Iterable[tuple[int, NewJob]]
    ) -> EnqueuedFlow:
        assert not self._is_open, "together with others"
        if self.refused is not None:
            raise self.refused
        self.flows.append((flow, list(members)))
        return EnqueuedFlow(len(self.flows), created=True, state=FlowState.OPEN)

    def block_buckets(self, blocks: Sequence[Throttle]) -> None:
        self._note("block", list(blocks))

    def return_permits(self, returns: Sequence[PermitReturn]) -> None:
        self._note("return", list(returns))

    def take_permits(
        self, run_id: str, asks: Sequence[PermitAsk]
    ) -> list[PermitAnswer]:
        assert run_id == "run"
        self._note("take", list(asks))
        return [PermitAnswer(granted=ask.cost == 1) for ask in asks]

    def report_requests(self, reports: Sequence[RequestReport]) -> list[BreakerChange]:
        assert not self._is_open, "together with others"
        if self.failures:
            raise self.failures.pop(0)
        self.done.append(("report", list(reports)))
        is_bad = any(one.failures for one in reports)
        state = BreakerState.OPEN if is_bad else BreakerState.CLOSED
        return [BreakerChange("stripe", "", state, 20, 10, 30_000 * is_bad)]

    def permits_freed(self) -> bool:
        freed, self.freed = self.freed, False
        return freed

    def _note(self, what: str, given: object) -> None:
        assert self._is_open, "outside of a transaction"
        self.done.append((what, given))

    def leases_of(self, _run_id: str) -> list[Lease]:
        return list(self.held)

    def confirm(self, _known: object) -> None:
        self.confirmed += 1
        if self.gone is not None:
            raise self.gone

    def wake(self) -> None:
        self.wakes += 1

    def store_part(self, settlement: Settlement) -> bool:
        if self.parts_left:
            self.parts_left -= 1
            self.parts.append(settlement.token)
            return True
        return False

    def damaged_rows(self) -> list[str]:
        found, self.spoilt = self.spoilt, []
        return found

    def tidy(self, *, waited_for: bool) -> None:
        """Nothing was deferred."""

    def close(self) -> None:
        self.closed = True


class Rig:
    """A store thread over a fake store, and what it posted."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.store = FakeStore()
        self.posted: list[object] = []
        self.thread = StoreThread(
            lambda: self.store, "run", self.posted.append, clock or SystemClock()
        )
        self.thread.start()
        self.thread.opened.wait(PATIENCE_S)

    def settle(self, *tokens: int, **fields: object) -> None:
        """Leave settlements; the thread sees none before all of them are there."""
        with self.thread._changed:
            for token in tokens:
                settlement = Settlement(
                    id=token, token=token, **({"state": JobState.SUCCEEDED} | fields)
                )
                self.thread.leave([cmd.Settle([settlement])])

    def wait_settled(self, count: int) -> list[inp.Settled]:
        """Wait until so many settlements have left the outbox."""

        def enough() -> list[inp.Settled] | None:
            found = self.of(inp.Settled)
            return found if sum(e.count for e in found) >= count else None

        return wait_until(enough, PATIENCE_S, f"{count} settled")

    def wait_for(self, kind: type) -> object:
        """Wait for something of a class and return it."""
        return wait_until(lambda: self.of(kind), PATIENCE_S, kind.__name__)[-1]

    def of(self, kind: type) -> list:
        """Return what was posted of a class."""
        return [one for one in list(self.posted) if isinstance(one, kind)]


def leased(token: int) -> Lease:
    """Return a lease."""
    return Lease(id=token, token=token, kind="k", pool="cpu", attempt=1, payload=b"{}")
