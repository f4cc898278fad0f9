"""How often to sample a child's memory, and how much to allow at most; pure."""

from __future__ import annotations

FILL_BYTES_PER_S = 8 * 2**30
"""Faster than any process was seen to fill memory: 256 MiB took 35 ms."""
SAMPLE_MIN_S = 0.002
SAMPLE_GROWING_S = 0.001
"""Instead, while it grows: numpy's huge pages fill 30 MiB in a few milliseconds."""
SAMPLE_MAX_S = 0.1
BACKSTOP_SLACK_BYTES = 64 * 2**20
"""With less than this left, OpenBLAS hangs instead of failing."""


def next_sample_s(rss_bytes: int, limit_bytes: int, *, grows: bool = False) -> float:
    """Return how long to wait before sampling a child's memory again.

    Short enough that even the fastest allocator cannot go far over its limit
    unseen: at least 2 ms (1 ms while it grows) and at most 100 ms.

    Args:
        rss_bytes: resident memory in this sample.
        limit_bytes: the limit.
        grows: it is larger than in the sample before.

    Returns:
        Seconds.
    """
    headroom_s = (limit_bytes - rss_bytes) / FILL_BYTES_PER_S
    least_s = SAMPLE_GROWING_S if grows else SAMPLE_MIN_S
    return min(SAMPLE_MAX_S, max(least_s, headroom_s))


def backstop_bytes(limit_bytes: int) -> int:
    """Return how much data a child may have on top of what it starts with.

    Loose on purpose: the limit itself is enforced from outside. This bound makes an
    allocation far beyond the limit fail at once with a MemoryError.

    Args:
        limit_bytes: the highest memory limit of any attempt in the child.
    """
    return 2 * limit_bytes + BACKSTOP_SLACK_BYTES
