"""Scaling: how many children each pool has. It never kills a busy one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from jobpool.core.config.settings import ScaleOn
from jobpool.core.events.pools import PoolResized
from jobpool.core.rules.run_report import HostReport
from jobpool.core.units import show_duration, show_size
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.admission.gate import Gate, what_shuts
from jobpool.supervisor.machine.attempts.idle import STUCK_S, IdleChildren
from jobpool.supervisor.machine.attempts.starting import Starting
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import Slot, SlotState
from jobpool.supervisor.machine.state.step import Step

CPU_IDLE_SHARE_MIN = 0.10
"""With less of the processors idle, another child would only take turns with others."""
CPU_PRESSURE_MAX = 25.0
"""With programs waiting for a processor for more of the time, in percent, the same."""
PRESSURE_MAX = 10.0
"""So much of the time programs may wait for memory, in percent."""
SETTLED_S = 10.0
"""After this time a new child has used about what it usually uses."""
GREW = "due jobs waited, and every slot was busy"
SHRANK = "a slot was idle"
AT_MOST = "at its most; due jobs wait"
AT_LEAST = "at its least; nothing waits for a slot"
IN_USE = "every slot is busy, and nothing waits"
IDLE = "some slots are idle; it shrinks after idle_shrink"
MEMORY_RESERVE_BYTES = 256 * 2**20
"""Left to other programs when another child is added."""
FORKS_MAX = 8
"""Most children that are asked for at once: a zygote makes one after another, and is
given up if one takes too long. Meanwhile it is not known what is left of the dead."""
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
    """Runnable jobs that wait, and that nothing else holds back."""
    idle_for_s: float
    """How long a slot has been idle without interruption; 0: none is."""
    idle_shrink_s: float
    child_bytes: int
    """What one more child may use: its memory limit, or what its jobs usually use."""
    host: HostReport
    scale_on: ScaleOn = ScaleOn.CPU
    oldest_s: float = 0.0
    """How long the oldest of the due jobs has waited; only for `ScaleOn.AGE`."""
    age_target_s: float = 0.0
    new_children: int = 0
    """Children that are too new to have used the memory that they will use."""
    holds: str = ""
    """What keeps the pool's leased jobs from beginning: no child would help."""


class Sizing(NamedTuple):
    """The size that a pool should have."""

    size: int
    wanted: int
    """What it would be if nothing kept the pool from growing."""
    why: str


def wanted_size(view: PoolView) -> Sizing:
    """Return the size that the pool should have now, always within its range.

    It grows, at most doubling, while due jobs wait and every slot is busy, as far as
    its bottleneck and the host allow. It shrinks by one at a time once a slot has been
    idle for long enough.
    """
    size = max(view.size_min, min(view.size, view.size_max))
    wanted = max(size, min(view.busy + view.due, view.size_max))
    if view.due > 0 and view.busy >= view.size:
        why = next(_against_growth(view, size), None)
        if why is not None:
            return Sizing(size, wanted, why)
        growth = min(view.due, view.size_max - size, max(size, 1), _room(view))
        return Sizing(size + growth, wanted, GREW)
    if view.busy < view.size and view.idle_for_s >= view.idle_shrink_s:
        smaller = max(view.size_min, size - 1)
        return Sizing(smaller, wanted, SHRANK if smaller < size else AT_LEAST)
    if size == view.size_min:
        return Sizing(size, wanted, AT_LEAST)
    return Sizing(size, wanted, IN_USE if view.busy >= view.size else IDLE)


def _against_growth(view: PoolView, size: int) -> Iterator[str]:
    """Yield what keeps a pool with due jobs from growing, the most telling first."""
    host = view.host
    if size >= view.size_max:
        yield AT_MOST
    if view.holds:
        yield f"not grown: its jobs wait for {view.holds}"
    if host.swapping:
        yield "not grown: this host swaps"
    if (host.memory_pressure or 0.0) > PRESSURE_MAX:
        yield f"not grown: memory pressure {host.memory_pressure:.0f} %"
    if _room(view) < 1:
        free, child = show_size(host.available_bytes), show_size(view.child_bytes)
        yield f"not grown: {free} are free, a child may use {child}"
    if view.scale_on is ScaleOn.CPU:
        if 1.0 - host.cpu_busy < CPU_IDLE_SHARE_MIN:
            yield "not grown: the processors are busy"
        if (host.cpu_pressure or 0.0) > CPU_PRESSURE_MAX:
            yield f"not grown: CPU pressure {host.cpu_pressure:.0f} %"
    if view.scale_on is ScaleOn.AGE and view.oldest_s < view.age_target_s:
        yield f"not grown: none waits for {show_duration(view.age_target_s)} yet"


def _room(view: PoolView) -> int:
    """Return for how many more children there is memory."""
    free_bytes = view.host.available_bytes - MEMORY_RESERVE_BYTES
    return free_bytes // max(view.child_bytes, 1) - view.new_children


class Scaling:
    """The pools' sizes.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        starting: makes children.
        idle: lets them go.
        gates: may keep jobs from beginning.
    """

    def __init__(
        self,
        step: Step,
        pools: dict[str, Pool],
        starting: Starting,
        idle: IdleChildren,
        gates: Sequence[Gate],
    ) -> None:
        self._step = step
        self._pools = pools
        self._starting = starting
        self._idle = idle
        self._gates = gates

    def has_surplus(self, pool: Pool) -> bool:
        """Say whether the pool has more children than it should."""
        return pool.children > pool.size + pool.spare

    def fill(self, pool: Pool) -> None:
        """Ask for the children that the pool lacks, some at a time."""
        if not pool.zygote_up or self._step.ending or self._step.fenced:
            return
        if self._step.now_s < pool.fork_retry_s and pool.gives_way_s is None:
            return
        missing = pool.size + pool.spare - pool.children
        if missing > 0 and self._gives_way(pool):
            return
        if missing <= 0:
            return
        states = [slot.state for slot in pool.slots]
        missing = min(missing, FORKS_MAX - states.count(SlotState.FORKING))
        for slot, state in zip(pool.slots, states, strict=True):
            if missing <= 0:
                return
            if state is SlotState.EMPTY:
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
            sizing = wanted_size(self._view(pool, event))
            pool.wanted, pool.why = sizing.wanted, sizing.why
            if sizing.size != pool.size:
                self.resize(pool, sizing.size, sizing.why)

    def _view(self, pool: Pool, event: inp.HostSeen) -> PoolView:
        settings, now_s = pool.settings, self._step.now_s
        while pool.grown and pool.grown[0][0] + SETTLED_S <= now_s:
            pool.grown.popleft()
        child_bytes, new_children = settings.limits.memory_bytes, 0
        if settings.scale_on is ScaleOn.MEMORY and pool.name in event.usual_bytes:
            child_bytes = event.usual_bytes[pool.name]
            new_children = sum(children for _, children in pool.grown)
        return PoolView(
            size=pool.size,
            size_min=settings.size_min,
            size_max=settings.size_max,
            busy=pool.busy,
            due=event.due.get(pool.name, 0) + len(pool.backlog),
            idle_for_s=pool.idle_for_s(now_s),
            idle_shrink_s=settings.idle_shrink_s,
            child_bytes=child_bytes,
            host=event.host,
            scale_on=settings.scale_on,
            oldest_s=event.oldest_s.get(pool.name, 0.0),
            age_target_s=settings.age_target_s,
            new_children=new_children,
            holds=what_shuts(self._gates, pool),
        )

    def resize(self, pool: Pool, size: int, reason: str) -> None:
        """Change a pool's size; surplus children end once they are idle."""
        self._step.report(
            PoolResized(
                at_ms=self._step.now_ms,
                pool=pool.name,
                size_from=pool.size,
                size_to=size,
                reason=reason,
            )
        )
        if size > pool.size:
            pool.grown.append((self._step.now_s, size - pool.size))
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
