"""A child without a job: it waits, ages, is asked to end, or is found not to rest.

Theory of operation. That a child has no job is what the child itself has said, and a
handler that speaks in its name can say so while it goes on. So a child at rest is
looked at from outside like a busy one (`watch`): what grows beyond the memory that its
attempts might have, works, or does not wait where our children wait, is killed. It has
no job then, and so nobody is to blame. Who had so much before it came to rest is asked
to end, without a word: quick jobs end before they are looked at, and may leave it. Who
is sent a job and does not begin it is found by its ticket (`Running.recalled`).
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
"""A child that has been sent jobs for so long, in a row, and began none is replaced."""


class IdleChildren:
    """The actions of the slot table for a child that has no job.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        freed: called with a slot that can take work, or needs another child.
    """

    def __init__(
        self, step: Step, pools: dict[str, Pool], freed: Callable[[Slot], None]
    ) -> None:
        self._step = step
        self._pools = pools
        self._freed = freed

    def rest(self, slot: Slot) -> None:
        """The slot's child waits for a job."""
        slot.state = SlotState.IDLE
        self._step.wake_slot_at(slot, self.old_at(slot))
        self._freed(slot)

    def aged(self, slot: Slot, _detail: object) -> None:
        """Its age may be over."""
        if self.is_worn(slot, slot.base_rss_bytes):
            self.retire(slot)
        else:
            self._step.wake_slot_at(slot, self.old_at(slot))

    def restless(self, slot: Slot, said: object) -> None:
        """It does what no child without a job does: another one shall."""
        self._step.say(notices.child_restless(self._step.now_ms, slot.name, str(said)))
        self.kill_now(slot)

    def retire(self, slot: Slot, _detail: object = None) -> None:
        """Ask a child without a job to end."""
        slot.state = SlotState.RETIRING
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
        slot.state = SlotState.KILLED
        self._step.wake_slot_at(slot, self._step.now_s + STUCK_S)
        self._step.out.append(cmd.Kill(slot.number))

    def old_at(self, slot: Slot) -> float:
        """Return when a child has had its time."""
        return slot.born_s + self._pools[slot.pool].settings.recycle_age_s

    def is_worn(self, slot: Slot, rss_bytes: int) -> bool:
        """Say whether a child has had its jobs, its time, or its memory."""
        settings = self._pools[slot.pool].settings
        return (
            slot.jobs >= settings.recycle_jobs
            or self._step.now_s >= self.old_at(slot)
            or rss_bytes - slot.base_rss_bytes >= settings.recycle_growth_bytes
        )
