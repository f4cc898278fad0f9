"""Memory that a child still has of attempts that have ended in it; pure.

A job's limit is that of its process tree, and others have used its process before.
What they have left (caches, libraries) is less than ``recycle_growth``, and yet it can
be all that a job with a small limit may have. Such a job gets another child, or, where
it had begun already, is not charged: it was not its own doing.

Only who had a higher limit can have left that much. Jobs of one limit share what they
leave, as a library that each of them uses: for them nothing is replaced. A soft limit
that is raised in the handler is nearer, and others may leave more than it.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobpool.core.rules.limits import Effective
from jobpool.core.units import show_size
from jobpool.sandbox.protocol.verdict import Kill, KillReason
from jobpool.supervisor.machine.state.slot import Slot

SHARE_MAX = 0.5
"""Of a job's room; limits are meant to be twice of what a job needs."""


def kill_for_memory(slot: Slot, seen_bytes: int) -> Kill:
    """Say why a child is killed whose attempt was seen over its memory limit."""
    limits = slot.queue[0].limits
    if _is_cramped(slot, limits):
        return _beside(slot, limits.memory_bytes)
    return Kill(KillReason.MEMORY, limit=limits.memory_bytes, seen=seen_bytes)


def kill_for_soft_memory(slot: Slot) -> Kill | None:
    """Say why a child is killed instead of telling its attempt; None: it is told.

    It could let go of nothing: what is over its soft limit was there before it.
    """
    limits = slot.queue[0].limits
    if not _is_softly_cramped(slot, limits) or limits.memory_soft_bytes is None:
        return None
    return _beside(slot, limits.memory_soft_bytes)


def first_with_room(slots: Iterable[Slot], limits: Effective) -> Slot | None:
    """Return the first child that has room for such limits."""
    for slot in slots:
        if not (_is_cramped(slot, limits) or _is_softly_cramped(slot, limits)):
            return slot
    return None


def _is_cramped(slot: Slot, limits: Effective) -> bool:
    """Say whether others have left too little room in a child for a limit."""
    is_lower = limits.memory_bytes < slot.allowed_bytes
    return is_lower and _is_taken(slot, limits.memory_bytes)


def _is_softly_cramped(slot: Slot, limits: Effective) -> bool:
    """The same for a soft limit, which nobody is held to: any job may leave more."""
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
