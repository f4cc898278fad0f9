"""How many children a pool with a range should have: pure arithmetic."""

from __future__ import annotations

import msgspec

CPU_IDLE_SHARE_MIN = 0.10
"""With less of the processors idle, another child would only take turns."""
MEMORY_RESERVE_BYTES = 256 * 2**20
"""Left to everybody else when another child is added."""


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """What the scaler must know about a pool and its host."""

    size: int
    size_min: int
    size_max: int
    busy: int
    due: int
    """Runnable jobs that wait."""
    idle_for_s: float
    """Since when a slot has been idle without interruption; 0: none is."""
    idle_shrink_s: float
    cpu_idle_share: float
    available_bytes: int
    child_bytes: int
    """Memory limit of a child: what one more may come to use."""


def wanted_size(view: PoolView) -> int:
    """Return the size that the pool should have now.

    It grows, at most doubling, while due jobs wait and every slot is busy, as far
    as idle processors and free memory allow. It shrinks by one at a time after a
    slot has been idle for long enough. It never leaves its range.
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
