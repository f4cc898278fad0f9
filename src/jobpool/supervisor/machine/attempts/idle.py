"""A child without a job: it waits, ages, retires, or is found active and killed.

Theory of operation. That a child is idle is its own report, which a handler can forge
while it goes on. So an idle child is watched from outside like a busy one
(`memory_watch`): it is killed if it grows beyond the memory that its attempts were
allowed, if it works, or if it does not wait where our children wait. It has no job
then, so none is charged. A child that had that much memory already when it became idle
is asked to end, without an alarm: quick jobs end before they are sampled, and may leave
it behind. A child that is sent a job and does not begin it is found by its ticket
(`Running.recalled`).
"""

from __future__ import annotations

from collections.abc import Callable

from jobpool.sandbox.protocol.messages import Retire
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine.state import notices
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import Slot, SlotState, empty
from jobpool.supervisor.machine.state.step import Step

RETIRE_LATE_S = 10.0
STUCK_S = 5.0
STUCK_AGAIN_S = 60.0
IDLED_MAX_S = 1.0
"""A child that had jobs for this long, in a row, and began none is replaced."""


class IdleChildren:
    """The actions of the slot table for a child that has no job.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        freed: called with a slot that can take a job, or needs another child.
    """

    def __init__(
        self, step: Step, pools: dict[str, Pool], freed: Callable[[Slot], None]
    ) -> None:
        self._step = step
        self._pools = pools
        self._freed = freed

    def rest(self, slot: Slot) -> None:
        """The slot's child waits for a job."""
        slot.become(SlotState.IDLE)
        self._step.wake_slot_at(slot, self.old_at(slot))
        self._freed(slot)

    def aged(self, slot: Slot, _detail: object) -> None:
        """It may have reached its maximum age."""
        if self.is_worn(slot, slot.base_rss_bytes):
            self.retire(slot)
        else:
            self._step.wake_slot_at(slot, self.old_at(slot))

    def not_idle(self, slot: Slot, what: object) -> None:
        """It is active without a job: kill it; another child replaces it."""
        step = self._step
        step.report(notices.child_not_idle(step.now_ms, slot.name, str(what)))
        self.kill_now(slot)

    def retire(self, slot: Slot, _detail: object = None) -> None:
        """Ask a child without a job to end."""
        slot.become(SlotState.RETIRING)
        self._step.out.append(cmd.Send(slot.number, Retire()))
        self._step.wake_slot_at(slot, self._step.now_s + RETIRE_LATE_S)

    def retire_late(self, slot: Slot, _detail: object) -> None:
        """It does not end by itself."""
        self.kill_now(slot)

    def retired(self, slot: Slot, _detail: object) -> None:
        """It has ended."""
        empty(slot)
        self._freed(slot)

    def kill_now(self, slot: Slot, _detail: object = None) -> None:
        """Kill the tree."""
        slot.become(SlotState.KILLED)
        self._step.wake_slot_at(slot, self._step.now_s + STUCK_S)
        self._step.out.append(cmd.Kill(slot.number))

    def old_at(self, slot: Slot) -> float:
        """Return when a child reaches its maximum age."""
        return slot.born_s + self._pools[slot.pool].settings.recycle_age_s

    def is_worn(self, slot: Slot, rss_bytes: int) -> bool:
        """Say whether a child has used up its jobs, its time, or its memory."""
        settings = self._pools[slot.pool].settings
        return (
            slot.jobs >= settings.recycle_jobs
            or self._step.now_s >= self.old_at(slot)
            or rss_bytes - slot.base_rss_bytes >= settings.recycle_growth_bytes
        )
