"""The probation gate: a job that may have killed its host runs alone at first.

Theory of operation. The store grants at most one suspect at a time, and none to a
supervisor that is younger than one probation. While a suspect waits, such a supervisor
gets nothing else either, so that it is empty when its turn comes; an empty one is
granted a suspect alone. From then on nothing begins here, nor in other supervisors of
this host (`Store.lease`). Once the suspect has run for as long as its losses require
(`suspects.probation_s`) it is cleared, in the store as well; it may end before that.
Then everything goes on. Without a suspect, which is nearly always, this costs nothing.

Where other attempts run already, a suspect begins once they have ended, or once each
has run for the length of the first probation: whatever was going to kill the host at
its start has had its time then. The suspect is not alone beside them, so one that was
lost more often waits longer for them to end: by as much as its probation is longer
than the first.

A suspect that waits for memory waits like any other job (`memory`), since what holds
the memory may run for hours: its turn, during which nothing else begins, starts when
there is room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobpool.core.events.jobs import JobCleared
from jobpool.core.jobs.job import Lease, Settlement
from jobpool.core.rules.suspects import is_past_clearing, probation_s
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine.admission.gate import Gate
from jobpool.supervisor.machine.admission.memory import MemoryGate
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import NEVER_S, Assigned, Slot
from jobpool.supervisor.machine.state.step import Step

PATIENCE = 3
"""First probations that a suspect may wait here for others that do not even begin; then
it is handed back."""
ALONE = "a suspect runs alone"
ITS_TURN = "it is a suspect, and waits until it can run alone"


class Probation(Gate):
    """The gate that admits a suspect, and nothing beside it.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        memory: says whether there is memory for a suspect.
        first_s: the shortest probation.
    """

    cause = "suspects"

    def __init__(
        self,
        step: Step,
        pools: Mapping[str, Pool],
        memory: MemoryGate,
        first_s: float,
    ) -> None:
        self._step = step
        self._pools = pools
        self._memory = memory
        self._first_s = first_s
        self._suspect: Assigned | None = None
        self._is_over = False
        """It has run for long enough, although that does not clear it."""
        self._asks_s = NEVER_S
        """When to ask for suspects that wait in the store."""
        self._turn_s: float | None = None
        """When there was first room for it."""
        self._since_s: float | None = None
        """When the supervisor began to lease jobs."""
        step.on_settle.append(self._settled)

    @property
    def takes_suspects(self) -> bool:
        """Whether the store may grant one: this supervisor is old enough."""
        return self._step.now_s >= self._grown_s()

    @property
    def is_empty(self) -> bool:
        """Whether a suspect that is granted now finds nothing else here."""
        waits = any(pool.backlog for pool in self._pools.values())
        return not waits and next(self._began_s(), None) is None

    @property
    def is_open(self) -> bool:
        """Whether no suspect is in hand."""
        return self._suspect is None

    @property
    def is_closed(self) -> bool:
        """Whether nothing but the suspect may begin."""
        suspect = self._suspect
        if suspect is None or self._is_over:
            return False
        return not self._memory.waits(suspect)

    def suspects_wait(self) -> None:
        """The store has suspects; ask for them as soon as it may grant one."""
        if not self.takes_suspects:
            self._asks_s = self._grown_s()
            self._step.wake_at(self._asks_s)

    def take(self, job: Assigned) -> None:
        """The store has granted a suspect."""
        self._suspect, self._turn_s, self._is_over = job, None, False
        self._step.wake_at(self._step.now_s)

    def admit(self, job: Assigned) -> str | None:
        """Admit a suspect whose turn has come, and other jobs only beside no suspect.

        Memory is asked first: a suspect's turn begins when there is room.
        """
        if job is not self._suspect:
            return ALONE if self.is_closed else None
        if refusal := self._memory.admit(job):
            return refusal
        if self._turn_s is None:
            self._turn_s = self._step.now_s
        return None if self._begins_s() <= self._step.now_s else ITS_TURN

    def admits_behind(self, job: Assigned, slot: Slot) -> bool:
        """Say whether anything but a suspect may begin."""
        del job, slot
        return not self.is_closed

    def begun(self) -> None:
        """If it was the suspect, its probation runs from now on."""
        self.keep_time()

    def shuts(self, pool: Pool) -> bool:
        """Say whether nothing but the suspect may begin, in any pool."""
        del pool
        return self.is_closed

    def keeps(self, job: Assigned) -> bool:
        """Say whether a suspect waits for its turn, and has not waited too long."""
        if job is not self._suspect or not self.is_closed:
            return False
        since_s = job.leased_s if self._turn_s is None else self._turn_s
        patience_s = self._longer_s(job) + PATIENCE * self._first_s
        return self._step.now_s < since_s + patience_s

    def pools_to_try(self) -> list[str]:
        """Return the pool whose suspect may be able to begin."""
        suspect = self._suspect
        if suspect is None or suspect.started_s is not None:
            return []
        return [suspect.lease.pool]

    def keep_time(self) -> None:
        """End the probation when it is over, or set the wake-up for that moment."""
        suspect, step = self._suspect, self._step
        if step.now_s >= self._asks_s:
            self._asks_s, step.recheck = NEVER_S, True
        step.wake_at(self._asks_s)
        if suspect is None or self._is_over:
            return
        if suspect.started_s is None:
            begins_s = self._begins_s()
            if step.now_s < begins_s < NEVER_S:
                step.wake_at(begins_s)
            return
        lease = suspect.lease
        ran_s = probation_s(lease, self._first_s)
        if (over_s := suspect.started_s + ran_s) > step.now_s:
            step.wake_at(over_s)
            return
        step.recheck = True
        if is_past_clearing(lease, self._first_s):
            self._is_over = True
            return
        self._suspect = None
        step.out.append(cmd.Clear(lease.id, lease.token))
        step.report(
            JobCleared(at_ms=step.now_ms, id=lease.id, kind=lease.kind, ran_s=ran_s)
        )

    def _settled(self, lease: Lease, settlement: Settlement) -> None:
        """The suspect has ended, or was handed back."""
        suspect = self._suspect
        if suspect is None or suspect.lease.token != lease.token:
            return
        self._suspect, self._step.recheck = None, True
        if settlement.suspect is False:
            self._step.report(
                JobCleared(at_ms=self._step.now_ms, id=lease.id, kind=lease.kind)
            )

    def _grown_s(self) -> float:
        """Return when the supervisor is as old as the first probation is long."""
        if self._since_s is None:
            self._since_s = self._step.now_s
        return self._since_s + self._first_s

    def _longer_s(self, suspect: Assigned) -> float:
        """Return by how much a suspect's probation is longer than the first."""
        return probation_s(suspect.lease, self._first_s) - self._first_s

    def _begins_s(self) -> float:
        """Return when the suspect may begin if no other attempt ends before."""
        old_s = max((began_s + self._first_s for began_s in self._began_s()), default=0)
        if self._suspect is None or self._turn_s is None or not old_s:
            return old_s
        return max(old_s, self._turn_s + self._longer_s(self._suspect))

    def _began_s(self) -> Iterator[float]:
        for pool in self._pools.values():
            for slot in pool.slots:
                for job in slot.queue:
                    if job is not self._suspect:
                        yield NEVER_S if job.started_s is None else job.started_s
