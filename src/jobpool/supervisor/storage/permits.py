"""What running attempts take and return of quotas, as it piles up for one commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from jobpool.core.events.flow import DownstreamClosed, DownstreamOpened
from jobpool.core.jobs.job import PermitAnswer, PermitAsk, PermitReturn, Throttle
from jobpool.core.rules.quotas.breaker import BreakerChange, BreakerState
from jobpool.store.protocol import Store
from jobpool.store.records.jobs import LeaseBatch
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine.state.polling import CROWDED_FOR_S

WAKE_AFTER_S = 0.005
"""What has come free here is left for the next lease of this supervisor for so long."""


@dataclass(slots=True)
class PermitBatch:
    """What is to be done about permits, in order: blocks, returns, then requests."""

    asks: list[PermitAsk] = field(default_factory=list)
    returns: list[PermitReturn] = field(default_factory=list)
    blocks: dict[tuple[str, str], int] = field(default_factory=dict)
    """The longest block of each bucket, in milliseconds."""

    def __bool__(self) -> bool:
        return bool(self.asks or self.returns or self.blocks)

    def take(
        self, command: cmd.TakePermits | cmd.ReturnPermits | cmd.BlockBuckets
    ) -> None:
        """Add a command."""
        match command:
            case cmd.TakePermits():
                self.asks += command.asks
            case cmd.ReturnPermits():
                self.returns += command.returns
            case cmd.BlockBuckets():
                for block in command.blocks:
                    self.block(block)

    def block(self, throttle: Throttle) -> None:
        """Add a block; of one bucket the longest counts."""
        bucket = throttle.quota, throttle.value
        self.blocks[bucket] = max(throttle.after_ms, self.blocks.get(bucket, 0))

    def keep(self, failed: PermitBatch) -> None:
        """Do again what could not be written; its requests were answered."""
        self.returns[:0] = failed.returns
        for (quota, value), after_ms in failed.blocks.items():
            self.block(Throttle(quota, value, after_ms))

    def write(self, store: Store, run_id: str) -> list[PermitAnswer]:
        """Write all of it in one transaction, and return the answers to the requests.

        It has a transaction of its own: it waits for buckets that others hold, and so
        does a claim. Each takes them in one order; both together would not, and two
        supervisors could wait for each other.

        Raises:
            StoreError: nothing is known to be written.
        """
        with store.transaction():
            if self.blocks:
                store.block_buckets(
                    [Throttle(*bucket, ms) for bucket, ms in self.blocks.items()]
                )
            if self.returns:
                store.return_permits(self.returns)
            return store.take_permits(run_id, self.asks) if self.asks else []


def report_requests(
    command: cmd.ReportRequests, store: Store
) -> list[DownstreamOpened | DownstreamClosed]:
    """Count requests for breakers, and return what the log says of those that changed.

    It is a transaction of its own, as that of permits is, and for the same reason.

    Raises:
        StoreError: nothing is known to be counted; it will not be tried again.
    """
    return [
        _event(change, command.at_ms)
        for change in store.report_requests(command.reports)
    ]


def _event(change: BreakerChange, at_ms: int) -> DownstreamOpened | DownstreamClosed:
    is_one_of_many = bool(change.value)
    if change.state is BreakerState.CLOSED:
        return DownstreamClosed(
            at_ms=at_ms, quota=change.quota, is_one_of_many=is_one_of_many
        )
    return DownstreamOpened(
        at_ms=at_ms,
        quota=change.quota,
        is_one_of_many=is_one_of_many,
        requests=change.requests,
        failures=change.failures,
        until_ms=change.until_ms,
    )


class FreedPermits:
    """Decides when others are to be woken for permits that came free here.

    Under a cap that binds, each end of a job would wake all supervisors, and all but
    one of them for nothing. The lease that follows the end, in the same commit if it
    can, takes what came free; others are woken if it has not taken so much, or would
    have taken more had it had slots, or if none follows.
    """

    def __init__(self) -> None:
        self._count = 0
        """Permits that came free and were not taken here; an upper bound."""
        self._by_s = inf
        self._crowded_until_s = -inf
        self.answered_s = -inf
        """When a lease was answered last, while jobs with quotas are leased: the end of
        one should be in the commit of the next lease."""
        self._taken = 0
        self._granted: tuple[LeaseBatch, int] | None = None

    def taken(self, count: int) -> None:
        """Running attempts have taken permits in this turn of the store thread."""
        self._taken = count

    def granted(self, grant: LeaseBatch, wanted: int) -> None:
        """The store has answered a lease of so many in this turn."""
        self._granted = grant, wanted

    def turn_ended(self, ended: int, now_s: float, *, is_awaited: bool) -> bool:
        """Say whether others are to be woken, at the end of a turn.

        Args:
            ended: how many attempts have, or permits that attempts had taken.
            now_s: monotonic time.
            is_awaited: somebody waits for permits that have come free.
        """
        taken, self._taken = self._taken, 0
        if is_awaited:
            self.came_free(ended - taken if ended else 1, now_s)
        if self._granted is not None:
            self.leased(*self._granted, now_s)
            self._granted = None
        return self.take_due(now_s)

    def came_free(self, count: int, now_s: float) -> None:
        """Permits of buckets came free that somebody waits for.

        Args:
            count: at most so many, less those that were taken here at once.
            now_s: monotonic time.
        """
        self._count += max(count, 0)
        if self._count and self._by_s == inf:
            self._by_s = now_s + WAKE_AFTER_S

    def leased(self, grant: LeaseBatch, wanted: int, now_s: float) -> None:
        """The store has answered a lease of so many."""
        laned = sum(lease.laned for lease in grant.leases)
        if laned:
            self._crowded_until_s = now_s + CROWDED_FOR_S
        if now_s < self._crowded_until_s:
            self.answered_s = now_s
        if not self._count:
            return
        if laned >= self._count and len(grant.leases) < wanted:
            self._settle()
        else:
            self._by_s = -inf

    def wait_s(self, now_s: float) -> float | None:
        """Return for how long nothing is to be done about them; None: for ever."""
        return None if self._by_s == inf else max(0.0, self._by_s - now_s)

    def take_due(self, now_s: float) -> bool:
        """Say, once, whether others are to be woken now."""
        if now_s < self._by_s:
            return False
        self._settle()
        return True

    def _settle(self) -> None:
        self._count, self._by_s = 0, inf
