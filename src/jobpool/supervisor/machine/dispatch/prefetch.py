"""What is sent ahead: jobs wait in their child, not for a message and its answer.

Fast ones do, and one of those that are not so fast but end soon: only if there are as
many others as slots, because whichever is free first should have the last ones.

A job that was sent ahead can be recalled until its child begins it; yet none is sent
behind an attempt that already lasts, nor to a child that is about to be replaced, and
none that expires: the child would not know. Of a kind with large results no more are
sent than the store writes soon, and none while it has many of the pool's to write.

Who has half of that left is sent more: one that has to ask for it stands still until
it comes.

While all children have enough to do, what they send is worth letting gather: a turn of
the loop that takes many ends costs little more than one that takes a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jobpool.supervisor.machine.admission.gate import Gate
from jobpool.supervisor.machine.attempts.deadlines import RECALL_AFTER_S
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import NEVER_S, Assigned, Slot, SlotState
from jobpool.supervisor.machine.state.step import Step

ATTEMPT_LEAST_S = 0.000025
"""No attempt, its child's reset included, was seen to take less."""
LIGHT_BYTES = 4096
HEAVY_MAX = 16
"""Of jobs with more arguments than that so many wait in a child: more would wait in our
own memory, for room in the child's socket."""
SHARES = 4
"""A slot gets at once what comes to a fourth of its part of the backlog."""
ENOUGH = 4
"""Who has fewer jobs behind the running one is answered at once."""


class Prefetch:
    """Sends a pool's backlog to slots that are busy.

    Args:
        step: shared by all parts of the machine.
        gates: say what may run behind what.
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
        """Spread the backlog over the busy slots, the emptiest first."""
        until = {slot.number: self._until(pool, slot) for slot in pool.slots}
        gates = [gate for gate in self._gates if not gate.is_open]
        able = [slot for slot in pool.slots if len(slot.queue) < until[slot.number]]
        while pool.backlog and able:
            slot = min(able, key=_held)
            # Much at once while there is much; the last ones go one by one.
            most = 1 + len(pool.backlog) // (SHARES * len(able))
            jobs = self._next(
                pool, slot, min(most, until[slot.number] - _held(slot)), gates
            )
            if jobs:
                self._assign(slot, jobs)
            if len(jobs) < most:
                able.remove(slot)

    def is_low(self, pool: Pool, slot: Slot) -> bool:
        """Say whether a child has no more than half of what may wait in it."""
        if slot.state is not SlotState.BUSY:
            return False
        ahead = pool.durations_of(slot.queue[0].lease.kind).ahead
        return len(slot.queue) <= ahead // 2

    def _next(
        self, pool: Pool, slot: Slot, most: int, gates: Sequence[Gate]
    ) -> list[Assigned]:
        """Take from the backlog what may wait behind the jobs of a slot, in order.

        Of what takes longer, or has large arguments, fewer may wait. What expires never
        may: its host may sleep meanwhile, or we may be stopped, and its child would not
        know.
        """
        backlog, held = pool.backlog, len(slot.queue)
        jobs: list[Assigned] = []
        while backlog and len(jobs) < most:
            job = backlog[0]
            durations = pool.durations_of(job.lease.kind)
            room = durations.ahead
            if len(job.lease.payload) > LIGHT_BYTES:
                room = min(room, HEAVY_MAX)
            is_one_of_many = durations.fast or len(backlog) >= pool.size
            has_room = held + len(jobs) <= room and is_one_of_many
            if job.expires_s < NEVER_S or not has_room:
                break
            if not all(gate.admits_behind(job, slot) for gate in gates):
                break
            jobs.append(backlog.popleft())
        return jobs

    def _until(self, pool: Pool, slot: Slot) -> int:
        """Return how many jobs a slot may hold by what is sent ahead; 0: nothing is."""
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
    """Return for how long no child needs us; 0: one may need us now.

    Each that is busy has more to do for so long; none is on its way, on its way out,
    or waits for an answer, and none is without a job that its pool may soon have.
    """
    ahead = 0
    for pool in pools:
        busy = [slot for slot in pool.slots if slot.queue]
        others = (slot.state for slot in pool.slots if not slot.queue)
        waits = (SlotState.EMPTY,) if busy else (SlotState.EMPTY, SlotState.IDLE)
        if any(state not in waits for state in others):
            return 0.0
        for slot in busy:
            behind = len(slot.queue) - 1
            if slot.state is not SlotState.BUSY or slot.asking or behind < ENOUGH:
                return 0.0
            ahead = min(ahead or behind, behind)
    return ahead * ATTEMPT_LEAST_S


def _held(slot: Slot) -> int:
    return len(slot.queue)
