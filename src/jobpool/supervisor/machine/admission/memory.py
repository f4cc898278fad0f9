"""Host admission: what runs together may use no more memory than there is for it.

Theory of operation. Each attempt may use memory up to its limit, so the limits of all
that runs are counted as used. A job that would pass the budget waits, first in its
pool's line, until enough has ended; other pools go on. When it has waited for a while
its share is kept free for it, so that a stream of smaller jobs cannot keep it out for
ever. A job that is larger than the whole budget runs alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobpool.core import events as ev
from jobpool.supervisor.machine.admission.gate import Gate
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import Assigned, Slot
from jobpool.supervisor.machine.state.step import Step

RESERVE_AFTER_S = 10.0
SAY_AFTER_S = 1.0
SAY_AGAIN_S = 60.0
HOLD_S = 30.0
"""A job that has waited for so long goes back: perhaps another host has memory."""
REASON = "waits for memory"


class MemoryGate(Gate):
    """The gate of host memory.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        budget_bytes: for all attempts together; None: no bound.
    """

    def __init__(
        self, step: Step, pools: Mapping[str, Pool], budget_bytes: int | None
    ) -> None:
        self._step = step
        self._pools = pools
        self.budget_bytes = budget_bytes
        self._waiting: dict[str, tuple[Assigned, float]] = {}
        """By pool: the first in line, if it is memory that it waits for, since when."""
        self._said_s = -SAY_AGAIN_S

    @property
    def is_open(self) -> bool:
        """Whether there is no bound."""
        return self.budget_bytes is None

    def admit(self, job: Assigned) -> str | None:
        """Let a job begin, or note it as waiting and say so."""
        if self.budget_bytes is None:
            return None
        pool = job.lease.pool
        used = self._used_bytes()
        wanted = used + job.limits.memory_bytes + self._reserved_bytes(but=pool)
        if used == 0 or wanted <= self.budget_bytes:
            self._waiting.pop(pool, None)
            return None
        before = self._waiting.get(pool)
        if before is None or before[0].lease.id != job.lease.id:
            before = self._waiting[pool] = (job, self._step.now_s)
            self._step.wake_at(self._step.now_s + SAY_AFTER_S)
        self._say(job, used, self._step.now_s - before[1])
        return REASON

    def waits(self, job: Assigned) -> bool:
        """Say whether it is memory that a job waits for."""
        found = self._waiting.get(job.lease.pool)
        return found is not None and found[0].lease.id == job.lease.id

    def keeps(self, job: Assigned) -> bool:
        """Say whether a job waits for memory, and has not for too long."""
        is_patient = job.leased_s + HOLD_S > self._step.now_s
        if not is_patient or not self.waits(job):
            return False
        self.admit(job)  # it has waited for long enough to say so, perhaps
        return True

    def shuts(self, pool: Pool) -> bool:
        """Say whether a pool's first in line waits for memory."""
        return bool(pool.backlog) and self.waits(pool.backlog[0])

    def pools_to_try(self) -> list[str]:
        """Return the pools whose first in line waits for memory."""
        return list(self._waiting)

    def admits_behind(self, job: Assigned, slot: Slot) -> bool:
        """Say whether a job may run in a slot after its first, without more memory."""
        if self.budget_bytes is None:
            return True
        return job.limits.memory_bytes <= slot.queue[0].limits.memory_bytes

    def emptied(self, pool: Pool) -> None:
        """Nothing of a pool's waits for memory any more."""
        self._waiting.pop(pool.name, None)

    def _used_bytes(self) -> int:
        """Sum the limits of what runs; of jobs sent ahead only one runs at a time."""
        return sum(
            max(job.limits.memory_bytes for job in slot.queue)
            for pool in self._pools.values()
            for slot in pool.slots
            if slot.queue
        )

    def _reserved_bytes(self, *, but: str) -> int:
        return sum(
            job.limits.memory_bytes
            for pool, (job, since_s) in self._waiting.items()
            if pool != but and self._step.now_s - since_s >= RESERVE_AFTER_S
        )

    def _say(self, job: Assigned, used: int, waited_s: float) -> None:
        step = self._step
        if waited_s < SAY_AFTER_S or step.now_s - self._said_s < SAY_AGAIN_S:
            return
        self._said_s = step.now_s
        step.say(
            ev.MemoryAwaited(
                at_ms=step.now_ms,
                pool=job.lease.pool,
                id=job.lease.id,
                kind=job.lease.kind,
                memory_bytes=job.limits.memory_bytes,
                used_bytes=used,
                budget_bytes=self.budget_bytes or 0,
            )
        )
