"""Memory that a child still has of attempts that have ended in it; pure.

A job's limit is that of its process tree, and others have used its process before.
What they have left (caches, libraries) is less than ``recycle_growth``, and yet it can
be all that a job with a small limit may have. Such a job gets another child, or, where
it had begun already, is not charged: it was not its own doing.

Only who had a higher limit can have left that much. Jobs of one limit share what they
leave, as a library that each of them uses: for them nothing is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobpool.core.quantity import show_size
from jobpool.sandbox.verdict import Kill, KillReason
from jobpool.supervisor.slot import Slot

SHARE_MAX = 0.5
"""Of a job's room; limits are meant to be twice of what a job needs."""


def is_cramped(slot: Slot, limit_bytes: int) -> bool:
    """Say whether others have left too little room in a child for such a limit."""
    if limit_bytes >= slot.allowed_bytes:
        return False
    room_bytes = limit_bytes - slot.base_rss_bytes
    return slot.left_bytes > SHARE_MAX * room_bytes


def kill_for_memory(slot: Slot, seen_bytes: int) -> Kill:
    """Say why a child is killed whose attempt was seen over its memory limit."""
    limit_bytes = slot.queue[0].limits.memory_bytes
    if is_cramped(slot, limit_bytes):
        left, limit = show_size(slot.left_bytes), show_size(limit_bytes)
        return Kill(KillReason.BESIDE, f"which had left {left} of {limit}")
    return Kill(KillReason.MEMORY, limit=limit_bytes, seen=seen_bytes)


def first_with_room(slots: Iterable[Slot], limit_bytes: int) -> Slot | None:
    """Return the first child that has room for such a limit."""
    return next((slot for slot in slots if not is_cramped(slot, limit_bytes)), None)
