"""Scaling: how many children each pool has. It never kills a busy one."""

from __future__ import annotations

import msgspec

from jobpool.core import events as ev
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.idle import STUCK_S, IdleChildren
from jobpool.supervisor.machine.attempts.starting import Starting
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import Slot, SlotState
from jobpool.supervisor.machine.state.step import Step

CPU_IDLE_SHARE_MIN = 0.10
"""With less of the processors idle, another child would only take turns with others."""
MEMORY_RESERVE_BYTES = 256 * 2**20
"""Left to other programs when another child is added."""
GIVE_WAY_S = 0.005
"""A kill that is due within this time, or was ordered about this long ago, goes before
a fork: the fork takes the cores that the kill needs, and while a child is being made it
cannot be known that nothing is left of a dead one's tree."""
GIVE_WAY_S_MAX = 0.02
"""The longest delay of a fork, however many deaths follow each other."""


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """What `wanted_size` needs to know about a pool and its host."""

    size: int
    size_min: int
    size_max: int
    busy: int
    due: int
    """Runnable jobs that wait."""
    idle_for_s: float
    """How long a slot has been idle without interruption; 0: none is."""
    idle_shrink_s: float
    cpu_idle_share: float
    available_bytes: int
    child_bytes: int
    """Memory limit of a child: what one more may use."""


def wanted_size(view: PoolView) -> int:
    """Return the size that the pool should have now, always within its range.

    It grows, at most doubling, while due jobs wait and every slot is busy, as far as
    idle processors and free memory allow. It shrinks by one at a time once a slot has
    been idle for long enough.
    """
    size = max(view.size_min, min(view.size, view.size_max))
    if view.due > 0 and view.busy >= view.size:
        if view.cpu_idle_share < CPU_IDLE_SHARE_MIN:
            return size
        room = (view.available_bytes - MEMORY_RESERVE_BYTES) // max(view.child_bytes, 1)
        growth = min(view.due, view.size_max - size, max(size, 1), max(room, 0))
        return size + max(0, growth)
    if view.busy < view.size and view.idle_for_s >= view.idle_shrink_s:
        return max(view.size_min, size - 1)
    return size


class Scaling:
    """The pools' sizes.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        starting: makes children.
        idle: lets them go.
    """

    def __init__(
        self, step: Step, pools: dict[str, Pool], starting: Starting, idle: IdleChildren
    ) -> None:
        self._step = step
        self._pools = pools
        self._starting = starting
        self._idle = idle

    def has_surplus(self, pool: Pool) -> bool:
        """Say whether the pool has more children than it should."""
        return pool.children > pool.size + pool.spare

    def fill(self, pool: Pool) -> None:
        """Ask for the children that the pool lacks."""
        if not pool.zygote_up or self._step.ending or self._step.fenced:
            return
        if self._step.now_s < pool.fork_retry_s and pool.gives_way_s is None:
            return
        missing = pool.size + pool.spare - pool.children
        if missing > 0 and self._gives_way(pool):
            return
        for slot in pool.slots:
            if missing <= 0:
                return
            if slot.state is SlotState.EMPTY:
                self._starting.fork(slot)
                missing -= 1

    def _gives_way(self, pool: Pool) -> bool:
        """Say whether a pool's next fork gives way to kills that are due."""
        now_s = self._step.now_s
        slots = (slot for each in self._pools.values() for slot in each.slots)
        since_s = now_s if pool.gives_way_s is None else pool.gives_way_s
        if now_s >= since_s + GIVE_WAY_S_MAX or not any(
            _is_dying(slot, now_s) for slot in slots
        ):
            pool.gives_way_s = None
            return False
        pool.gives_way_s, pool.fork_retry_s = since_s, now_s + GIVE_WAY_S
        self._step.wake_at(pool.fork_retry_s)
        return True

    def host_seen(self, event: inp.HostSeen) -> None:
        """Let pools with a range grow or shrink."""
        for pool in self._pools.values():
            settings = pool.settings
            if settings.size_min == settings.size_max or self._step.ending:
                continue
            size = wanted_size(
                PoolView(
                    size=pool.size,
                    size_min=settings.size_min,
                    size_max=settings.size_max,
                    busy=pool.busy,
                    due=event.due.get(pool.name, 0) + len(pool.backlog),
                    idle_for_s=pool.idle_for_s(self._step.now_s),
                    idle_shrink_s=settings.idle_shrink_s,
                    cpu_idle_share=event.cpu_idle_share,
                    available_bytes=event.available_bytes,
                    child_bytes=settings.limits.memory_bytes,
                )
            )
            if size != pool.size:
                reason = "due jobs wait" if size > pool.size else "slots were idle"
                self.resize(pool, size, reason)

    def resize(self, pool: Pool, size: int, reason: str) -> None:
        """Change a pool's size; surplus children end once they are idle."""
        self._step.report(
            ev.PoolResized(
                at_ms=self._step.now_ms,
                pool=pool.name,
                size_from=pool.size,
                size_to=size,
                reason=reason,
            )
        )
        pool.size = size
        pool.idle_since_s = None
        self.fill(pool)
        for slot in reversed(pool.slots):
            if slot.state is SlotState.IDLE and self.has_surplus(pool):
                self._idle.retire(slot)


def _is_dying(slot: Slot, now_s: float) -> bool:
    """Say whether a slot's child is about to be killed, or has just been."""
    if slot.state is SlotState.BUSY:
        return slot.queue[0].dumped and slot.deadline_s <= now_s + GIVE_WAY_S
    if slot.state is SlotState.KILLED:
        return slot.deadline_s > now_s + STUCK_S - 2 * GIVE_WAY_S
    return slot.state is SlotState.DUMPING
