"""Self-fencing: no attempt may run once another supervisor may hold its lease.

Theory of operation. In a store that several hosts share, leases end by time: a
supervisor owns what it has leased until the moment that its last successful renewal
bought, counted from before the renewal was sent. A supervisor that cannot renew
therefore kills what it runs a little earlier (the margin), gives everything back and
leases nothing until a renewal succeeds again. If the leases ran out all the same (the
machine was suspended, a clock was wrong), others may have taken some of them: then
it does so at once, and goes on with new leases.

Every fence begins a new epoch. What was leased, or asked for, in an earlier epoch never
begins, wherever it turns up. While the fence lasts no child is made either: zygotes end
every child that they find once the leases have run out. Without a deadline (a store on
one host, where no lease ends by time) none of this happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jobpool.core.events.supervisor import LeaseFenced, LeaseRegained
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.dispatch.dispatcher import Dispatcher
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import NEVER_S, Slot, SlotState
from jobpool.supervisor.machine.state.step import Step

LEASE_EXTRA_S = 1.0
"""Added to the nominal TTL when leases are published, so that an outage shorter than
the TTL ends no job."""
MARGIN_S = 0.5
MARGIN_SHARE = 0.1
"""The margin is at most this share of the TTL."""
UNRENEWED = "its lease could not be renewed in time"
LAPSED = "its lease had run out"


def published_ttl_s(ttl_s: float) -> float:
    """Return for how long leases are published, given their nominal TTL."""
    return ttl_s + LEASE_EXTRA_S


def margin_s(ttl_s: float) -> float:
    """Return how long before its leases end a supervisor kills what it runs.

    Its zygotes do the same after half of that time, in case the supervisor itself is
    stopped: later than a healthy supervisor, and before others may take a job.

    Args:
        ttl_s: for how long leases are published.
    """
    return min(MARGIN_S, MARGIN_SHARE * ttl_s)


class Fencing:
    """Tracks how long the leases are ours, and fences when they may not be.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        dispatcher: hands back what waits.
        fill: called with each pool once it may start children again.
    """

    def __init__(
        self,
        step: Step,
        pools: Mapping[str, Pool],
        dispatcher: Dispatcher,
        *,
        fill: Callable[[Pool], None],
    ) -> None:
        self._step = step
        self._pools = pools
        self._dispatcher = dispatcher
        self._fill = fill
        self._sent_s = 0.0
        """When the last successful renewal was sent."""
        self._fenced_s = 0.0
        self.at_s = NEVER_S
        """When everything must be killed unless a renewal succeeds."""

    @property
    def is_due(self) -> bool:
        """Whether it is time to fence, and that has not been done."""
        return not self._step.fenced and self.at_s <= self._step.now_s

    def renewed(self, event: inp.Renewed) -> None:
        """The leases are ours for longer; that new moment may already be near."""
        step = self._step
        self._sent_s = event.until_s - event.ttl_s
        self.at_s = event.until_s - margin_s(event.ttl_s)
        if self.at_s <= step.now_s:
            return
        step.wake_at(self.at_s)
        if step.fenced:
            step.fenced = False
            away_s = max(0.0, step.now_s - self._fenced_s)
            step.report(LeaseRegained(at_ms=step.now_ms, away_s=away_s))
            self._dispatcher.hint()
            for pool in self._pools.values():
                self._fill(pool)

    def close(self) -> list[Slot]:
        """Hand back what waits, and lease nothing until a renewal succeeds.

        Returns:
            The slots that must be stopped now.
        """
        step = self._step
        step.fenced = True
        self._fenced_s = step.now_s
        return self._distrust(step.now_s - self._sent_s, lapsed=False)

    def lapse(self) -> list[Slot]:
        """Distrust every lease that was granted so far.

        Returns:
            The slots that must be stopped now.
        """
        return self._distrust(self._step.now_s - self._sent_s, lapsed=True)

    def _distrust(self, silent_s: float, *, lapsed: bool) -> list[Slot]:
        step = self._step
        step.epoch += 1
        waiting = sum(len(pool.backlog) for pool in self._pools.values())
        for pool in self._pools.values():
            self._dispatcher.give_up(pool)
        slots = [slot for pool in self._pools.values() for slot in pool.slots]
        busy = [s for s in slots if s.queue and s.state is not SlotState.KILLED]
        if not lapsed or busy or waiting:
            event = LeaseFenced(
                at_ms=step.now_ms,
                silent_s=max(0.0, silent_s),
                ended=len(busy),
                handed_back=waiting + sum(len(slot.queue) - 1 for slot in busy),
                lapsed=lapsed,
            )
            step.report(event)
        return busy
