"""Residual memory: what earlier attempts have left in a child. Pure.

A job's limit applies to its process tree, and earlier attempts have used the same
process. What they left (caches, libraries) is less than ``recycle_growth``, and can
still be all that a job with a small limit may use. Such a job gets another child or, if
it has begun already, is not charged.

Only attempts with a higher limit can have left that much. Jobs with the same limit
share what they leave, such as a library that each of them uses: nothing is replaced for
them. A soft limit that raises in the handler is lower, so that any job may leave more.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobpool.core.rules.limits import Effective
from jobpool.core.units import show_size
from jobpool.sandbox.protocol.verdict import Kill, KillReason
from jobpool.supervisor.machine.state.slot import Slot

SHARE_MAX = 0.5
"""Share of a job's room that may be taken; limits should be twice what a job needs."""


def kill_for_memory(slot: Slot, seen_bytes: int) -> Kill:
    """Return why a child is killed whose attempt was sampled over its memory limit."""
    limits = slot.queue[0].limits
    if _is_cramped(slot, limits):
        return _beside(slot, limits.memory_bytes)
    return Kill(KillReason.MEMORY, limit=limits.memory_bytes, seen=seen_bytes)


def kill_for_soft_memory(slot: Slot) -> Kill | None:
    """Return why a child is killed instead of signaled; None: signal it.

    Its attempt could free nothing: what exceeds its soft limit was there before it.
    """
    limits = slot.queue[0].limits
    if not _is_softly_cramped(slot, limits) or limits.memory_soft_bytes is None:
        return None
    return _beside(slot, limits.memory_soft_bytes)


def first_with_room(slots: Iterable[Slot], limits: Effective) -> Slot | None:
    """Return the first slot whose child has room for these limits."""
    for slot in slots:
        if not (_is_cramped(slot, limits) or _is_softly_cramped(slot, limits)):
            return slot
    return None


def _is_cramped(slot: Slot, limits: Effective) -> bool:
    """Say whether earlier attempts have left too little room for a limit."""
    is_lower = limits.memory_bytes < slot.allowed_bytes
    return is_lower and _is_taken(slot, limits.memory_bytes)


def _is_softly_cramped(slot: Slot, limits: Effective) -> bool:
    """The same for a soft limit, which is not enforced: any job may leave more."""
    soft_bytes = limits.memory_soft_bytes
    if soft_bytes is None or not limits.memory_soft_raises:
        return False
    return _is_taken(slot, soft_bytes)


def _is_taken(slot: Slot, limit_bytes: int) -> bool:
    room_bytes = max(0, limit_bytes - slot.base_rss_bytes)
    return slot.left_bytes > SHARE_MAX * room_bytes


def _beside(slot: Slot, limit_bytes: int) -> Kill:
    left, limit = show_size(slot.left_bytes), show_size(limit_bytes)
    return Kill(KillReason.BESIDE, f"which had left {left} of {limit}")
