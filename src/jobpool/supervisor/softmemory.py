"""What the core does when an attempt is over its soft memory limit."""

from __future__ import annotations

from collections.abc import Callable

from jobpool.core.events import MemorySoftPassed
from jobpool.errors import JobpoolBug
from jobpool.sandbox.verdict import Kill
from jobpool.supervisor import messages as m
from jobpool.supervisor import watchmessages as wm
from jobpool.supervisor.desk import Desk
from jobpool.supervisor.leftovers import kill_for_soft_memory
from jobpool.supervisor.slot import Slot


class SoftMemory:
    """Tells people once an attempt, and the child until it has heard.

    Args:
        desk: shared with the rest of the core.
        kill: ends a child whose attempt could let go of nothing.
    """

    def __init__(self, desk: Desk, kill: Callable[[Slot, Kill], None]) -> None:
        self._desk = desk
        self._kill = kill

    def passed(self, slot: Slot, detail: object) -> None:
        """The tree of a busy slot's child is over the limit."""
        if not isinstance(detail, wm.OverMemory):
            raise JobpoolBug(f"SOFT_MEMORY came with {type(detail).__name__}")
        job = slot.queue[0]
        if detail.seq != job.seq:
            return  # it was looked at before the present attempt began
        if kill := kill_for_soft_memory(slot):
            self._kill(slot, kill)
            return
        raises = job.limits.memory_soft_raises
        if not job.soft_memory_said:
            job.soft_memory_said = True
            self._desk.say(
                MemorySoftPassed(
                    at_ms=self._desk.now_ms,
                    id=job.lease.id,
                    kind=job.lease.kind,
                    slot=slot.name,
                    attempt=job.lease.attempt,
                    rss_bytes=detail.rss_bytes,
                    soft_bytes=job.limits.memory_soft_bytes or 0,
                    memory_bytes=job.limits.memory_bytes,
                    raised=raises,
                )
            )
        if raises:
            self._desk.out.append(m.SoftMemory(slot.number))
