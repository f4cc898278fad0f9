"""Probation: a job that may have killed its host begins alone.

Theory of operation. The store grants at most one suspect at a time, and none to a
supervisor that is younger than a probation itself. From then on nothing begins here.
The suspect itself begins once every other attempt has run for as long as a probation:
what was going to kill the host at its start has had its time. Once the suspect has run
for that long it is cleared, in the store as well; it may as well end before. Then
everything goes on. While none is in hand, which is nearly always, this costs nothing.

A suspect that waits for memory waits like any other job (`admission`), for what has it
may run for hours: its turn, and with it the silence, begins when there is room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobpool.core.cautionevents import JobCleared
from jobpool.core.job import Lease, Settlement
from jobpool.supervisor import cautionmessages as cm
from jobpool.supervisor.admission import Admission
from jobpool.supervisor.desk import Desk
from jobpool.supervisor.pool import Pool
from jobpool.supervisor.slot import NEVER_S, Assigned

PATIENCE = 3
"""So many probations a suspect may wait here for the others; then it is handed back."""


class Probation:
    """Says what may begin while a suspect is in hand.

    Args:
        desk: shared with the rest of the core.
        pools: by name.
        admission: says whether there is memory for a suspect.
        probation_s: a suspect that has run for so long is cleared.
    """

    def __init__(
        self,
        desk: Desk,
        pools: Mapping[str, Pool],
        admission: Admission,
        probation_s: float,
    ) -> None:
        self._desk = desk
        self._pools = pools
        self._admission = admission
        self.probation_s = probation_s
        self._suspect: Assigned | None = None
        self._turn_s: float | None = None
        """When there was room for it first."""
        self._since_s: float | None = None
        """When the supervisor began to take jobs."""
        desk.on_settle.append(self._settled)

    @property
    def takes_suspects(self) -> bool:
        """Whether the store may grant one: we have lived for long enough ourselves."""
        if self._since_s is None:
            self._since_s = self._desk.now_s
        return self._desk.now_s >= self._since_s + self.probation_s

    @property
    def is_closed(self) -> bool:
        """Whether nothing but the suspect may begin."""
        suspect = self._suspect
        return suspect is not None and not self._admission.waits(suspect)

    def take(self, job: Assigned) -> None:
        """The store has granted a suspect."""
        self._suspect, self._turn_s = job, None
        self._desk.wake_at(self._desk.now_s)

    def admits(self, job: Assigned) -> bool:
        """Say whether a job may begin now, as far as memory goes as well."""
        if job is not self._suspect:
            return not self.is_closed and self._admission.admits(job)
        if not self._admission.admits(job):
            return False
        if self._turn_s is None:
            self._turn_s = self._desk.now_s
        return self._others_old_s() <= self._desk.now_s

    def waits(self, job: Assigned) -> bool:
        """Say whether it is its turn that a suspect waits for."""
        if job is not self._suspect or not self.is_closed:
            return False
        since_s = job.leased_s if self._turn_s is None else self._turn_s
        return self._desk.now_s < since_s + PATIENCE * self.probation_s

    def pools_to_try(self) -> list[str]:
        """Return the pool whose suspect may be able to begin."""
        suspect = self._suspect
        if suspect is None or suspect.started_s is not None:
            return []
        return [suspect.lease.pool]

    def keep_time(self) -> None:
        """Clear the suspect when its time has come, or see to it that it is woken."""
        suspect, desk = self._suspect, self._desk
        if suspect is None:
            return
        if suspect.started_s is None:
            old_s = self._others_old_s()
            if desk.now_s < old_s < NEVER_S:
                desk.wake_at(old_s)
            return
        clear_s = suspect.started_s + self.probation_s
        if clear_s > desk.now_s:
            desk.wake_at(clear_s)
            return
        lease = suspect.lease
        self._suspect, desk.look_again = None, True
        desk.out.append(cm.Clear(lease.id, lease.token))
        desk.say(
            JobCleared(
                at_ms=desk.now_ms, id=lease.id, kind=lease.kind, ran_s=self.probation_s
            )
        )

    def _settled(self, lease: Lease, settlement: Settlement) -> None:
        """The suspect has ended, or was handed back."""
        suspect = self._suspect
        if suspect is None or suspect.lease.token != lease.token:
            return
        self._suspect, self._desk.look_again = None, True
        if settlement.suspect is False:
            self._desk.say(
                JobCleared(at_ms=self._desk.now_ms, id=lease.id, kind=lease.kind)
            )

    def _others_old_s(self) -> float:
        """Return when every other attempt will have run for long enough."""
        return max(
            (began_s + self.probation_s for began_s in self._began_s()), default=0.0
        )

    def _began_s(self) -> Iterator[float]:
        for pool in self._pools.values():
            for slot in pool.slots:
                for job in slot.queue:
                    if job is not self._suspect:
                        yield NEVER_S if job.started_s is None else job.started_s
