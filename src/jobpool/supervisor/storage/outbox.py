"""The outbox: settlements stay here until they are known to be written.

Theory of operation. A settlement leaves the outbox once the store has given a receipt
for it. One whose job is locked by another session's open transaction is tried again
shortly, apart from the others. Large ones get a commit of their own, after that of the
small ones, and so few of them in one turn (or part of one, see `Store.store_part`) that
nothing else waits for all of them; unless they become too many, because no jobs may be
leased before these are settled (`backpressure` makes that rare).

When the answer to a commit is lost, everything in it is in doubt. The settlements are
sent once more (a stale receipt then means that the first time counted). Once the store
answers again, leases that it granted to this run without this process's knowledge are
handed back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jobpool.core.clock import Clock
from jobpool.core.events.event import Event
from jobpool.core.events.jobs import JobCompleted
from jobpool.core.events.supervisor import StaleSettlement
from jobpool.core.jobs.job import Lease, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import hand_back
from jobpool.store.protocol import Store
from jobpool.store.records.jobs import Receipt
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state.backpressure import is_large, size_bytes

LATER_FIRST_S = 0.005
LATER_LAST_S = 0.05
"""Pauses before settling a job again that an open transaction locks: a supervisor that
leases releases it in a moment, an application's transaction may take longer."""
TURN_BYTES = 2**21
"""About this much of the large ones is written in one turn, or one of them."""
HURRIED_TURN_BYTES = 2**18
"""The same if small ones have come lately: they wait for it to be written."""
QUIET_S = 0.1
"""What is longer ago than this is not lately."""
LARGE_MAX = 32
"""With more large ones than this none is put off: each slot must remember, in its ring
of marks, all that began there and is not settled."""


class Outbox:
    """Settlements that are not known to be written, and leases that are not settled.

    Args:
        run_id: the run that holds the leases.
        post: takes what came of the settlements.
        clock: for the pace, and the times of events.
    """

    def __init__(
        self,
        run_id: str,
        post: Callable[[inp.SupervisorEvent | Event], None],
        clock: Clock,
    ) -> None:
        self._run_id = run_id
        self._post = post
        self._clock = clock
        self._small: list[Settlement] = []
        self._large: list[Settlement] = []
        self._small_s = float("-inf")
        """When the last small one came."""
        self._later: list[Settlement] = []
        self._later_s = 0.0
        """When those are tried again."""
        self._pause_s = LATER_FIRST_S
        self._granted: set[int] = set()
        """Tokens of leases that this supervisor knows of and has not settled."""
        self._doubtful: set[int] = set()
        """Tokens of settlements that may have been written already."""
        self.in_doubt = False
        """The store may have granted us leases that we do not know of."""

    def __bool__(self) -> bool:
        """Say whether anything may not be written yet."""
        return self.is_due or bool(self._later)

    @property
    def is_due(self) -> bool:
        """Whether there is something to be written now."""
        return bool(self._small or self._large)

    @property
    def is_hurried(self) -> bool:
        """Whether small ones have come lately, so that more may follow."""
        return self._clock.monotonic_s() - self._small_s <= QUIET_S

    def add(self, settlements: Iterable[Settlement]) -> None:
        """Add settlements to be written."""
        before = len(self._small)
        self._sort(settlements)
        if len(self._small) > before:
            self._small_s = self._clock.monotonic_s()

    def _sort(self, settlements: Iterable[Settlement]) -> None:
        for settlement in settlements:
            (self._large if is_large(settlement) else self._small).append(settlement)

    def due(self, *, last: bool = False) -> list[Settlement]:
        """Return what is to be written now, in order.

        Args:
            last: this is the last chance.
        """
        if self._later and (last or self._later_s <= self._clock.monotonic_s()):
            self._sort(self._later)
            self._later.clear()
        is_all = last or len(self._large) > LARGE_MAX
        return self._small + self._large if is_all else self._small[:]

    def due_apart(self) -> list[Settlement]:
        """Return what is to be written after that, in a commit of its own."""
        found: list[Settlement] = []
        room_bytes = HURRIED_TURN_BYTES if self.is_hurried else TURN_BYTES
        for settlement in self._large:
            room_bytes -= size_bytes(settlement)
            if found and room_bytes < 0:
                break
            found.append(settlement)
        return found

    def wait_s(self) -> float | None:
        """Return how long to wait before the next write; None: there is nothing."""
        if self.is_due:
            return 0.0  # a store in trouble was left alone already
        if self._later:
            return max(0.0, self._later_s - self._clock.monotonic_s())
        return None

    def granted(self, leases: Iterable[Lease]) -> None:
        """Note leases that the loop is about to get."""
        self._granted.update(lease.token for lease in leases)

    def doubt(self, sent: Iterable[Settlement]) -> None:
        """The answer to a commit was lost."""
        self._doubtful.update(settlement.token for settlement in sent)
        self.in_doubt = True

    def answered(self, sent: Sequence[Settlement], receipts: Sequence[Receipt]) -> None:
        """The store has answered for what was sent to it."""
        by: dict[Receipt, list[Settlement]] = {receipt: [] for receipt in Receipt}
        if receipts.count(Receipt.ACCEPTED) == len(sent):  # nearly always
            by[Receipt.ACCEPTED] += sent
        else:
            for settlement, receipt in zip(sent, receipts, strict=True):
                by[receipt].append(settlement)
        were_large = {one.token for one in self._large}
        self._forget(sent)
        if by[Receipt.LATER]:
            self._later += by.pop(Receipt.LATER)
            self._later_s = self._clock.monotonic_s() + self._pause_s
            self._pause_s = min(2 * self._pause_s, LATER_LAST_S)
        elif not self._later:
            self._pause_s = LATER_FIRST_S
        left = [settlement for group in by.values() for settlement in group]
        # One that is locked by another transaction adds no back-pressure.
        large = tuple(one.token for one in sent if one.token in were_large)
        if not left and not large:
            return
        for settlement in by[Receipt.STALE]:
            self._report_stale(settlement)
        for settlement in by[Receipt.COMPLETED]:
            self._report_completed(settlement)
        tokens = {settlement.token for settlement in left}
        self._granted -= tokens
        self._doubtful -= tokens
        self._post(
            inp.Settled(
                len(left),
                large=large,
                stale=_tokens(by[Receipt.STALE]),
                completed=_tokens(by[Receipt.COMPLETED]),
                unfinished=_tokens(s for s in by[Receipt.ACCEPTED] if _is_awaited(s)),
                handed_on=_tokens(by[Receipt.HANDED_ON]),
            )
        )

    def _forget(self, sent: Iterable[Settlement]) -> None:
        tokens = {settlement.token for settlement in sent}
        self._small = [one for one in self._small if one.token not in tokens]
        self._large = [one for one in self._large if one.token not in tokens]

    def discard(self) -> None:
        """Give up what is not written: it must not be, into this store."""
        left = [*self._small, *self._large, *self._later]
        large = tuple(one.token for one in self._large)
        self._small, self._large, self._later = [], [], []
        self.in_doubt = False
        if left:
            self._post(inp.Settled(len(left), large=large, stale=_tokens(left)))

    def reconcile(self, store: Store) -> None:
        """Hand back what was granted without our knowledge.

        While an open transaction locks any of it, the doubt remains: call it again.

        Raises:
            StoreError: nothing is known to have changed; call it again.
        """
        with store.transaction():
            held = store.leases_of(self._run_id)
            strays = [lease for lease in held if lease.token not in self._granted]
            receipts = store.settle([hand_back(lease) for lease in strays])
        self.in_doubt = Receipt.LATER in receipts
        if strays:
            store.wake()

    def _report_stale(self, settlement: Settlement) -> None:
        if settlement.token in self._doubtful:
            return  # it was written the first time
        self._post(
            StaleSettlement(
                at_ms=self._clock.utc_ms(),
                id=settlement.id,
                token=settlement.token,
                outcome=settlement.outcome,
            )
        )

    def _report_completed(self, settlement: Settlement) -> None:
        """Correct the report of an attempt whose job was completed before it ended."""
        if settlement.completed or settlement.outcome in (None, Outcome.SUCCEEDED):
            return
        self._post(
            JobCompleted(
                at_ms=self._clock.utc_ms(),
                id=settlement.id,
                token=settlement.token,
                outcome=settlement.outcome,
            )
        )


def _is_awaited(settlement: Settlement) -> bool:
    """Say whether an end is reported only once it is written."""
    return settlement.completed or settlement.unknown_for_ms is not None


def _tokens(settlements: Iterable[Settlement]) -> tuple[int, ...]:
    return tuple(settlement.token for settlement in settlements)
