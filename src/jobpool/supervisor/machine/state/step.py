"""A step of the machine: its time, and the commands that it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from jobpool.core.events.event import Event
from jobpool.core.jobs.job import Lease, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.jobs.trace import TraceContext, Tracer, read_trace
from jobpool.core.rules.lifecycle import hand_back
from jobpool.sandbox.protocol.messages import RunJob
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.machine.state.slot import NEVER_S, Assigned, Slot


class Step:
    """What all parts of the machine share: time, commands, and what is still owed.

    Args:
        reports_successes: every success becomes an event.
        counts: figures become events (`core.events.figures`).
        details: so does all that is known of failures, and of ticks.
    """

    def __init__(
        self,
        *,
        reports_successes: bool = True,
        counts: bool = False,
        details: bool = False,
    ) -> None:
        self.reports_successes = reports_successes
        self.counts = counts
        self.details = details
        self.kills: Counter[str] = Counter()
        """Children that were killed, by cause."""
        self.tracer: Tracer | None = None
        """Names attempts' spans, which become events (`AttemptTraced`); None: nobody
        hears them."""
        self.granted_s: float | None = None
        """Monotonic time of the last grant of leases."""
        self.out: list[cmd.Command] = []
        self._assigned: dict[int, list[RunJob]] = {}
        """The jobs that `out` has for each child, by slot."""
        self._settled: list[Settlement] = []
        """The settlements that this step has for the store."""
        self.registry: Registry | None = None
        """The kinds, once a zygote has reported them."""
        self.now_s = 0.0
        """Monotonic time of the present step."""
        self.slept_s = 0.0
        """How long this host has slept so far."""
        self.now_ms = 0
        """Wall clock of the present step; only for events."""
        self.earliest_s = NEVER_S
        """The next moment at which anything is due."""
        self.ending = False
        """A drain or stop has begun."""
        self.fenced = False
        """Nothing begins until the leases, which may have lapsed, are renewed."""
        self.epoch = 0
        """Counts the fences; leases of earlier epochs are not trusted."""
        self.unsettled = 0
        """Settlements given out and not yet answered."""
        self.canceled: set[int] = set()
        """Tokens of jobs that must not begin, while a child may have them."""
        self.interrupted = 0
        """Attempts that we ended before their time."""
        self.on_settle: list[Callable[[Lease, Settlement], None]] = []
        """Called with every settlement that is no plain success, before it is sent."""
        self.others_begin = False
        """An attempt with permits has ended, or a member of a flow: what has waited for
        that may begin, in any pool."""
        self.recheck = False
        """Something that kept jobs from beginning has ended: try all pools."""

    def set_time(self, now_s: float, now_ms: int, slept_s: float) -> None:
        """Begin a step."""
        self.now_s, self.now_ms, self.slept_s = now_s, now_ms, slept_s

    def report(self, events: Event | Iterable[Event]) -> None:
        """Report events to the observer."""
        reported = (events,) if isinstance(events, Event) else events
        self.out.extend(map(cmd.Observe, reported))

    def trace_of(self, lease: Lease) -> TraceContext | None:
        """Return an attempt's trace context; None: it is in no trace."""
        if self.tracer is not None:
            return self.tracer.of(lease.trace, lease.id, lease.token)
        return None if lease.trace is None else read_trace(lease.trace)

    def assign(self, slot: Slot, frames: Iterable[RunJob]) -> None:
        """Send jobs to a slot's child, together with the others of this step."""
        assigned = self._assigned.get(slot.number)
        if assigned is None:
            assigned = self._assigned[slot.number] = []
            self.out.append(cmd.Assign(slot.number, assigned))
        assigned += frames

    def take(self) -> list[cmd.Command]:
        """Return the commands of this step, and forget them."""
        taken, self.out = self.out, []
        self._assigned.clear()
        if self._settled:  # after everything that is to be recorded of their attempts
            taken.append(cmd.Settle(self._settled))
            self._settled = []
        return taken

    def wake_at(self, moment_s: float) -> None:
        """Have a step taken at this moment."""
        self.earliest_s = min(self.earliest_s, moment_s)

    def wake_slot_at(self, slot: Slot, moment_s: float) -> None:
        """Set a slot's deadline."""
        slot.deadline_s = moment_s
        self.earliest_s = min(self.earliest_s, moment_s)

    def settle(self, lease: Lease, settlement: Settlement) -> None:
        """Send a settlement to the store, after `on_settle`."""
        for listener in self.on_settle:
            listener(lease, settlement)
        if self.registry is not None:
            settlement = self.registry.with_followup(lease, settlement)
        if settlement.followup is not None and (trace := self.trace_of(lease)):
            hook = msgspec.structs.replace(settlement.followup, trace=trace.text)
            settlement = msgspec.structs.replace(settlement, followup=hook)
        self.interrupted += settlement.outcome is Outcome.INTERRUPTED
        self.settle_plain([settlement])

    def settle_plain(self, settlements: list[Settlement]) -> None:
        """Send plain settlements to the store, without `on_settle`."""
        if self.canceled:
            self.canceled.difference_update(one.token for one in settlements)
        self.unsettled += len(settlements)
        self._settled += settlements

    def hand_back(self, leases: Iterable[Lease]) -> None:
        """Return leases whose attempt never began; nothing is charged."""
        for lease in leases:
            self.settle(lease, hand_back(lease))

    def wanted(self, jobs: Iterable[Assigned]) -> list[Assigned]:
        """Return those jobs, none of them begun, that still may; hand back the rest."""
        wanted = []
        for job in jobs:
            if self.ending or job.lease.token in self.canceled:
                self.hand_back([job.lease])
            else:
                wanted.append(job)
        return wanted
