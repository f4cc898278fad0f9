"""The desk: what the parts of the core share within a step: time, and an out-tray."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jobpool.core.events import Event
from jobpool.core.jobs.job import Lease, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import hand_back
from jobpool.sandbox.protocol.messages import RunJob
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.machine.state.slot import NEVER_S, Assigned, Slot


class Step:
    """Time of the present step, commands to give, and what is still owed.

    Args:
        reports_successes: people hear of every success.
    """

    def __init__(self, *, reports_successes: bool = True) -> None:
        self.reports_successes = reports_successes
        self.out: list[cmd.Command] = []
        self._assigned: dict[int, list[RunJob]] = {}
        """What `out` has for each child, by slot."""
        self._settled: list[Settlement] = []
        """The ends that this step has for the store."""
        self.registry: Registry | None = None
        """The kinds, once a zygote has reported them."""
        self.now_s = 0.0
        """Monotonic time of the present step."""
        self.slept_s = 0.0
        """How long this host had slept until then."""
        self.now_ms = 0
        """Wall clock of the present step; only for what people read."""
        self.earliest_s = NEVER_S
        """Nobody waits for a moment before this one."""
        self.ending = False
        """A drain or stop has begun."""
        self.fenced = False
        """Nothing is begun until the leases, which may not be ours now, are renewed."""
        self.epoch = 0
        """Counts the moments from which on earlier leases are not trusted any more."""
        self.unsettled = 0
        """Settlements given out and not yet answered."""
        self.canceled: set[int] = set()
        """Tokens of jobs that are not to begin, while a child may have them."""
        self.interrupted = 0
        """Attempts that we ended before their time."""
        self.on_settle: list[Callable[[Lease, Settlement], None]] = []
        """Told of every settlement before it is given out."""
        self.recheck = False
        """Something that kept jobs from beginning is over."""

    def set_time(self, now_s: float, now_ms: int, slept_s: float) -> None:
        """Begin a step."""
        self.now_s, self.now_ms, self.slept_s = now_s, now_ms, slept_s

    def say(self, events: Event | Iterable[Event]) -> None:
        """Tell people."""
        said = (events,) if isinstance(events, Event) else events
        self.out.extend(map(cmd.Observe, said))

    def assign(self, slot: Slot, frames: Iterable[RunJob]) -> None:
        """Send jobs to a slot's child, together with the others of this step."""
        assigned = self._assigned.get(slot.number)
        if assigned is None:
            assigned = self._assigned[slot.number] = []
            self.out.append(cmd.Assign(slot.number, assigned))
        assigned += frames

    def take(self) -> list[cmd.Command]:
        """Return the commands of this step, and clear the tray."""
        taken, self.out = self.out, []
        self._assigned.clear()
        if self._settled:  # after whatever their attempts had to be recorded
            taken.append(cmd.Settle(self._settled))
            self._settled = []
        return taken

    def wake_at(self, moment_s: float) -> None:
        """See to it that a step is taken at this moment."""
        self.earliest_s = min(self.earliest_s, moment_s)

    def wake_slot_at(self, slot: Slot, moment_s: float) -> None:
        """Set a slot's deadline."""
        slot.deadline_s = moment_s
        self.earliest_s = min(self.earliest_s, moment_s)

    def settle(self, lease: Lease, settlement: Settlement) -> None:
        """Give a settlement to the store."""
        for tell in self.on_settle:
            tell(lease, settlement)
        if self.registry is not None:
            settlement = self.registry.with_followup(lease, settlement)
        self.interrupted += settlement.outcome is Outcome.INTERRUPTED
        self.settle_plain([settlement])

    def settle_plain(self, settlements: list[Settlement]) -> None:
        """Give settlements to the store that tell nobody here anything."""
        if self.canceled:
            self.canceled.difference_update(one.token for one in settlements)
        self.unsettled += len(settlements)
        self._settled += settlements

    def hand_back(self, leases: Iterable[Lease]) -> None:
        """Return leases whose attempt never began; nothing is counted."""
        for lease in leases:
            self.settle(lease, hand_back(lease))

    def wanted(self, jobs: Iterable[Assigned]) -> list[Assigned]:
        """Return those of jobs that never began that still may; hand back the rest."""
        wanted = []
        for job in jobs:
            if self.ending or job.lease.token in self.canceled:
                self.hand_back([job.lease])
            else:
                wanted.append(job)
        return wanted
