"""How often to look at a child's memory, and how much to allow at most; pure."""

from __future__ import annotations

FILL_BYTES_PER_S = 8 * 2**30
"""Faster than any process was seen to fill memory: 256 MiB took 35 ms."""
LOOK_MIN_S = 0.002
LOOK_GROWING_S = 0.001
"""Instead, while it grows: numpy's huge pages fill 30 MiB in a few milliseconds."""
LOOK_MAX_S = 0.1
BACKSTOP_SLACK_BYTES = 64 * 2**20
"""Less than this left, and OpenBLAS waits for ever instead of failing."""


def next_look_s(rss_bytes: int, limit_bytes: int, *, grows: bool = False) -> float:
    """Return how long to wait before the next look at a child's memory.

    So long that even the fastest allocator cannot go far over its limit unseen,
    2 ms at least (1 ms while it grows) and 100 ms at most.

    Args:
        rss_bytes: resident memory at this look.
        limit_bytes: the limit.
        grows: it is larger than at the look before.

    Returns:
        Seconds.
    """
    headroom_s = (limit_bytes - rss_bytes) / FILL_BYTES_PER_S
    return min(LOOK_MAX_S, max(LOOK_GROWING_S if grows else LOOK_MIN_S, headroom_s))


def backstop_bytes(limit_bytes: int) -> int:
    """Return how much data a child may have in addition to what it begins with.

    Loose on purpose: the limit itself is enforced from outside. This one makes an
    allocation far beyond it fail at once, as a MemoryError.

    Args:
        limit_bytes: the highest memory limit that the child may meet.
    """
    return 2 * limit_bytes + BACKSTOP_SLACK_BYTES
