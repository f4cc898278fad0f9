"""The memory gate: attempts that run together must fit into the host's budget.

Theory of operation. Each attempt may use memory up to its limit, and most use far less.
So what nearly all attempts of a kind were seen to use, and a margin, counts as used
(`UsualMemory`), never more than the limit. The limit counts while that is unknown, for
a job that has run out of memory before, and for all where the settings say so. Where
kinds outgrow what was seen, `host_memory` keeps the host from running short.

The first attempts of a kind do not wait for its hundredth: with what ten of them make
likely, more may begin while the host plainly has as much to spare as all that runs may
still grow to. Not those with ``rerun="never"``: the host could not interrupt them.

A job that would exceed the budget waits, first in its pool's backlog, until enough
attempts have ended; other pools go on. After a while its share is reserved, so that a
stream of smaller jobs cannot keep it out for ever. A job that is larger than the whole
budget runs alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jobpool.core.config.settings import MemoryAdmission, Settings
from jobpool.core.events.pools import MemoryAwaited
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.pool_coverage import slots_within
from jobpool.core.rules.policy import Rerun
from jobpool.core.rules.run_report import MemoryReport
from jobpool.supervisor.machine.admission.gate import Gate
from jobpool.supervisor.machine.admission.host_memory import (
    PRESSURE_FROM,
    reserve_bytes,
)
from jobpool.supervisor.machine.inputs import HostMemorySeen
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import Assigned, Slot
from jobpool.supervisor.machine.state.step import Step
from jobpool.supervisor.machine.state.usual_memory import UsualMemory

RESERVE_AFTER_S = 10.0
REPORT_AFTER_S = 1.0
REPORT_AGAIN_S = 60.0
HOLD_S = 30.0
"""A job that has waited this long goes back: another host may have memory."""
REASON = "waits for memory"


class MemoryGate(Gate):
    """The gate of host memory.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        settings: have the budget, for all attempts together.
        usual: what attempts were seen to use.
    """

    cause = "memory"

    def __init__(
        self,
        step: Step,
        pools: Mapping[str, Pool],
        settings: Settings,
        usual: UsualMemory,
    ) -> None:
        self._step = step
        self._pools = pools
        self._usual = usual
        self._needs_bytes: dict[int, int] = {}
        """What counts of each slot, by number, as of the last look."""
        self._used_bytes = 0
        """Their sum."""
        self._seen_usual = -1
        """The version of `usual` by which they were computed."""
        self._waiting: dict[str, tuple[Assigned, float]] = {}
        """By pool: its first job, if that waits for memory, and since when."""
        self._spare_bytes = 0
        """What the host plainly has to spare, as of the last look."""
        self._reported_s = -REPORT_AGAIN_S
        self.set(settings)

    def set(self, settings: Settings) -> None:
        """Take new settings."""
        self._settings = settings
        self.budget_bytes = settings.memory_budget_bytes
        self._observes = settings.memory_admission is MemoryAdmission.OBSERVED
        self._seen_usual = -1

    def seen(self, event: HostMemorySeen) -> None:
        """The host's memory was looked at."""
        kept_bytes = int(PRESSURE_FROM * reserve_bytes(event.total_bytes))
        before_bytes = self._spare_bytes
        self._spare_bytes = event.available_bytes - kept_bytes
        if self._waiting and self._spare_bytes > max(0, before_bytes):
            self._step.recheck = True

    @property
    def is_open(self) -> bool:
        """Whether there is no limit."""
        return self.budget_bytes is None

    def admit(self, job: Assigned) -> str | None:
        """Admit a job, or note it as waiting and report that."""
        if self.budget_bytes is None:
            return None
        pool = job.lease.pool
        used = self._look()
        wanted = used + self._need_bytes(job) + self._reserved_bytes(but=pool)
        if used == 0 or wanted <= self.budget_bytes or self._is_spare(job):
            self._waiting.pop(pool, None)
            return None
        before = self._waiting.get(pool)
        if before is None or before[0].lease.id != job.lease.id:
            before = self._waiting[pool] = (job, self._step.now_s)
            self._step.wake_at(self._step.now_s + REPORT_AFTER_S)
        self._report(job, used, self._step.now_s - before[1])
        return REASON

    def waits(self, job: Assigned) -> bool:
        """Say whether a job waits for memory."""
        found = self._waiting.get(job.lease.pool)
        return found is not None and found[0].lease.id == job.lease.id

    def keeps(self, job: Assigned) -> bool:
        """Say whether a job waits for memory, and has not waited too long."""
        is_patient = job.leased_s + HOLD_S > self._step.now_s
        if not is_patient or not self.waits(job):
            return False
        self.admit(job)  # the wait may be long enough to report by now
        return True

    def shuts(self, pool: Pool) -> bool:
        """Say whether a pool's first job waits for memory."""
        return bool(pool.backlog) and self.waits(pool.backlog[0])

    def pools_to_try(self) -> list[str]:
        """Return the pools whose first job waits for memory."""
        return list(self._waiting)

    def admits_behind(self, job: Assigned, slot: Slot) -> bool:
        """Say whether a job needs no more memory than the one that a slot runs."""
        if self.budget_bytes is None:
            return True
        return self._need_bytes(job) <= self._need_bytes(slot.queue[0])

    def emptied(self, pool: Pool) -> None:
        """No job of this pool waits for memory any more."""
        self._waiting.pop(pool.name, None)

    def _is_spare(self, job: Assigned) -> bool:
        """Say whether the host plainly has what a job of a new kind is likely to need.

        Although it has none of what runs now: that may all be still to come.
        """
        likely_bytes = self._likely_bytes(job)
        if likely_bytes >= self._need_bytes(job):
            return False
        most_bytes = min(self._spare_bytes, self.budget_bytes or 0)
        slots = (slot for pool in self._pools.values() for slot in pool.slots)
        running = (max(map(self._likely_bytes, s.queue)) for s in slots if s.queue)
        kept_bytes = self._reserved_bytes(but=job.lease.pool)
        return likely_bytes + kept_bytes + sum(running) <= most_bytes

    def _likely_bytes(self, job: Assigned) -> int:
        """Return what counts of a job while there is memory to spare."""
        need_bytes, lease = self._need_bytes(job), job.lease
        if need_bytes < job.limits.memory_bytes or not self._may_hope(job):
            return need_bytes
        likely = self._usual.likely_bytes((lease.kind, lease.pool))
        return need_bytes if likely is None else min(need_bytes, likely)

    def _may_hope(self, job: Assigned) -> bool:
        """Say whether less than its limit may count of a job."""
        is_never = job.policy.rerun is Rerun.NEVER
        return self._observes and not is_never and not _ran_out(job)

    def report(self) -> MemoryReport | None:
        """Return how many slots can be used at once, and why; None: all of them."""
        registry, settings = self._step.registry, self._settings
        if registry is None or self.budget_bytes is None:
            return None
        most: dict[str, tuple[int, str, bool]] = {}
        for pool in settings.pools:
            kinds = registry.memory_limits(pool.name)
            needs = [
                self._counted(kind, pool.name, limit) for kind, limit in kinds.items()
            ]
            most[pool.name] = max(needs, default=(pool.limits.memory_bytes, "", True))
        found = slots_within(settings, {name: one[0] for name, one in most.items()})
        if found is None:
            return None
        counted, kind, is_limit = max(most.values())
        return MemoryReport(
            slots=found[1],
            usable=found[0],
            budget_bytes=self.budget_bytes,
            kind=kind,
            bytes=counted,
            is_limit=is_limit,
        )

    def _counted(self, kind: str, pool: str, limit: int) -> tuple[int, str, bool]:
        """Return with what a kind counts, and whether that is its limit."""
        usual = self._usual.reserved_bytes((kind, pool)) if self._observes else None
        if usual is None or usual >= limit:
            return limit, kind, True
        return usual, kind, False

    def _need_bytes(self, job: Assigned) -> int:
        """Return what counts of a job."""
        limit_bytes, lease = job.limits.memory_bytes, job.lease
        if not self._observes or _ran_out(job):
            return limit_bytes
        usual = self._usual.reserved_bytes((lease.kind, lease.pool))
        return limit_bytes if usual is None else min(limit_bytes, usual)

    def _look(self) -> int:
        """Return what runs needs; of jobs sent ahead only one runs at a time."""
        if self._usual.version != self._seen_usual:
            self._seen_usual = self._usual.version
            self._needs_bytes, self._used_bytes = {}, 0
            changed = (slot for pool in self._pools.values() for slot in pool.slots)
            self._count(slot for slot in changed if slot.queue)
        for pool in self._pools.values():
            self._count(pool.tally.changed.values())
            pool.tally.changed.clear()
        return self._used_bytes

    def _count(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            now = max(map(self._need_bytes, slot.queue), default=0)
            self._used_bytes += now - self._needs_bytes.get(slot.number, 0)
            self._needs_bytes[slot.number] = now

    def _reserved_bytes(self, *, but: str) -> int:
        return sum(
            self._need_bytes(job)
            for pool, (job, since_s) in self._waiting.items()
            if pool != but and self._step.now_s - since_s >= RESERVE_AFTER_S
        )

    def _report(self, job: Assigned, used: int, waited_s: float) -> None:
        step = self._step
        if waited_s < REPORT_AFTER_S or step.now_s - self._reported_s < REPORT_AGAIN_S:
            return
        self._reported_s = step.now_s
        step.report(
            MemoryAwaited(
                at_ms=step.now_ms,
                pool=job.lease.pool,
                id=job.lease.id,
                kind=job.lease.kind,
                memory_bytes=self._need_bytes(job),
                used_bytes=used,
                budget_bytes=self.budget_bytes or 0,
            )
        )


def _ran_out(job: Assigned) -> bool:
    """Say whether an attempt of a job has run out of memory before."""
    return any(past.outcome is Outcome.OUT_OF_MEMORY for past in job.lease.history)
