"""Prefetch: jobs that wait in their child save it a round trip to the supervisor.

Fast jobs are sent ahead; of jobs that are less fast but still end soon, one is, and
only if as many others wait as there are slots, since the last ones should go to
whichever slot is free first.

A job that was sent ahead can be recalled until its child begins it. Still, none is sent
behind an attempt that already runs long, nor to a child that is about to be replaced,
and never one that expires, or that a rate counts as begun soon: the child would not
know. Of a kind with large results no more are sent than the store can write soon, and
none while many of the pool's large results are unwritten.

A child with half of its share left is sent more: one that had to ask would stand still
until they come.

While all children have enough to do, it pays to let their messages gather: a turn of
the loop that takes many ends costs little more than one that takes a single end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jobpool.supervisor.machine.admission.gate import Gate
from jobpool.supervisor.machine.attempts.deadlines import RECALL_AFTER_S
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import NEVER_S, Assigned, Slot, SlotState
from jobpool.supervisor.machine.state.step import Step

ATTEMPT_LEAST_S = 0.000025
"""No measured attempt, its child's reset included, took less."""
LIGHT_BYTES = 4096
HEAVY_MAX = 16
"""Jobs with more than `LIGHT_BYTES` of arguments that may wait in a child: more would
wait in our own memory, for room in the child's socket."""
SHARES = 4
"""A slot gets a quarter of its share of the backlog at a time."""
ENOUGH = 4
"""A child with fewer jobs behind the running one is answered at once."""


class Prefetch:
    """Sends a pool's backlog to slots that are busy.

    Args:
        step: shared by all parts of the machine.
        gates: decide what may run behind what.
        assign: takes a slot and its next jobs.
    """

    def __init__(
        self,
        step: Step,
        gates: Sequence[Gate],
        assign: Callable[[Slot, Sequence[Assigned]], None],
    ) -> None:
        self._step = step
        self._gates = gates
        self._assign = assign

    def send(self, pool: Pool) -> None:
        """Spread the backlog over the busy slots, the least full first."""
        if not pool.backlog or not self._is_any(pool, pool.backlog[0]):
            return  # found out before all slots are looked at
        until = {slot.number: self._until(pool, slot) for slot in pool.slots}
        gates = [gate for gate in self._gates if not gate.is_open]
        able = [slot for slot in pool.slots if len(slot.queue) < until[slot.number]]
        while pool.backlog and able:
            slot = min(able, key=_held)
            # Many at once while there are many; the last ones go one by one.
            most = 1 + len(pool.backlog) // (SHARES * len(able))
            jobs = self._next(
                pool, slot, min(most, until[slot.number] - _held(slot)), gates
            )
            if jobs:
                self._assign(slot, jobs)
            if len(jobs) < most:
                able.remove(slot)

    def is_low(self, pool: Pool, slot: Slot) -> bool:
        """Say whether a child has at most half of what may wait in it."""
        if slot.state is not SlotState.BUSY:
            return False
        ahead = pool.durations_of(slot.queue[0].lease.kind).ahead
        return len(slot.queue) <= ahead // 2

    def _next(
        self, pool: Pool, slot: Slot, most: int, gates: Sequence[Gate]
    ) -> list[Assigned]:
        """Take from the backlog what may wait behind the jobs of a slot, in order.

        Fewer may wait of jobs that take longer or have large arguments, and none that
        expires: the host may sleep, or we may be stopped, and the child would not know.
        """
        backlog, held = pool.backlog, len(slot.queue)
        jobs: list[Assigned] = []
        while backlog and len(jobs) < most:
            job = backlog[0]
            durations = pool.durations_of(job.lease.kind)
            room = durations.ahead
            if len(job.lease.payload) > LIGHT_BYTES:
                room = min(room, HEAVY_MAX)
            has_room = held + len(jobs) <= room and self._is_any(pool, job)
            if job.expires_s < NEVER_S or job.begin_by_s < NEVER_S or not has_room:
                break
            if not all(gate.admits_behind(job, slot) for gate in gates):
                break
            jobs.append(backlog.popleft())
        return jobs

    def _is_any(self, pool: Pool, job: Assigned) -> bool:
        """Say whether a job may wait in any child: it is fast, or one of many."""
        durations = pool.durations_of(job.lease.kind)
        return durations.fast or (durations.brisk and len(pool.backlog) >= pool.size)

    def _until(self, pool: Pool, slot: Slot) -> int:
        """Return how many jobs a slot may hold; 0: nothing may be sent ahead."""
        if slot.state is not SlotState.BUSY or slot.killed or slot.recalling:
            return 0
        settings, now_s = pool.settings, self._step.now_s
        if slot.worn or now_s >= slot.born_s + settings.recycle_age_s:
            return 0
        head = slot.queue[0]
        if head.started_s is None or now_s - head.started_s > RECALL_AFTER_S:
            return 0
        most = 1 + pool.durations_of(head.lease.kind).ahead
        return min(most, settings.recycle_jobs - slot.jobs)


def patience_s(pools: Iterable[Pool]) -> float:
    """Return for how long no child needs the supervisor; 0: one may need it now.

    Each busy child has more to do for that long; none starts, ends or waits for an
    answer, and none is idle while its pool may soon have a job for it.
    """
    ahead = 0
    for pool in pools:  # asked once a turn: one pass, and mostly a short one
        is_busy = is_idle = False
        for slot in pool.slots:
            if slot.queue:
                behind = len(slot.queue) - 1
                if slot.state is not SlotState.BUSY or slot.asking or behind < ENOUGH:
                    return 0.0
                is_busy, ahead = True, min(ahead or behind, behind)
            elif slot.state is SlotState.IDLE:
                is_idle = True
            elif slot.state is not SlotState.EMPTY:
                return 0.0
        if is_busy and is_idle:
            return 0.0
    return ahead * ATTEMPT_LEAST_S


def _held(slot: Slot) -> int:
    return len(slot.queue)
