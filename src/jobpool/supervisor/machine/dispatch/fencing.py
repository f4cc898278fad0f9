"""Self-fencing: nothing of ours may run once our leases may be somebody else's.

Theory of operation. In a store that several hosts share, leases end by time: what a
supervisor holds is its own until the moment that its last successful renewal bought,
counted from before the renewal was sent. A supervisor that cannot renew therefore
kills what it runs a little earlier (the margin), gives everything back and leases
nothing, until a renewal succeeds again. If leases had run out all the same (the
machine was suspended, a clock was wrong), others may have taken some of them: then
it does so at once, and goes on with new ones.

Every fence begins another epoch. What was leased, or asked for, in an earlier epoch
is never begun any more, wherever it turns up. While it lasts no child is made either:
zygotes end every child that they find once the leases have run out. Without a deadline
(a store on one host, where no lease ends by time) nothing here ever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jobpool.core import events as ev
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.dispatch.dispatcher import Dispatcher
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import NEVER_S, Slot, SlotState
from jobpool.supervisor.machine.state.step import Step

LEASE_EXTRA_S = 1.0
"""Leases are published for so much longer than their nominal TTL, so that an outage
which is shorter than the TTL ends no job."""
MARGIN_S = 0.5
MARGIN_SHARE = 0.1
"""The margin is never a larger share of the TTL."""
UNRENEWED = "its lease could not be renewed in time"
LAPSED = "its lease had run out"


def published_ttl_s(ttl_s: float) -> float:
    """Return for how long leases are published, given their nominal TTL."""
    return ttl_s + LEASE_EXTRA_S


def margin_s(ttl_s: float) -> float:
    """Return how long before its leases end a run ends what it runs.

    The supervisor does. Its zygotes do so when half of that time has passed, if it is
    stopped itself: before anybody else may take a job, and after it, if it is well.

    Args:
        ttl_s: for how long leases are published.
    """
    return min(MARGIN_S, MARGIN_SHARE * ttl_s)


class Fencing:
    """The core's knowledge of how long its leases are its own.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        dispatcher: gives back what waits.
        fill: called with each pool once it may have children again.
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
        """When the renewal that counts was sent."""
        self._fenced_s = 0.0
        self.at_s = NEVER_S
        """When everything must be ended unless a renewal succeeds."""

    @property
    def is_due(self) -> bool:
        """Whether the moment has come, and nothing has been done about it."""
        return not self._step.fenced and self.at_s <= self._step.now_s

    def renewed(self, event: inp.Renewed) -> None:
        """The leases are ours until a new moment, which may already be near."""
        step = self._step
        self._sent_s = event.until_s - event.ttl_s
        self.at_s = event.until_s - margin_s(event.ttl_s)
        if self.at_s <= step.now_s:
            return
        step.wake_at(self.at_s)
        if step.fenced:
            step.fenced = False
            away_s = max(0.0, step.now_s - self._fenced_s)
            step.say(ev.LeaseRegained(at_ms=step.now_ms, away_s=away_s))
            self._dispatcher.hint()
            for pool in self._pools.values():
                self._fill(pool)

    def close(self) -> list[Slot]:
        """Give back what waits, and lease nothing until a renewal succeeds.

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
            event = ev.LeaseFenced(
                at_ms=step.now_ms,
                silent_s=max(0.0, silent_s),
                ended=len(busy),
                handed_back=waiting + sum(len(slot.queue) - 1 for slot in busy),
                lapsed=lapsed,
            )
            step.say(event)
        return busy
