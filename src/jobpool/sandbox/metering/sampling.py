"""How often to measure a child, and how much memory to allow it at most.

Its memory is sampled more often the nearer it is to its limit. But the cost of a
measurement grows with what a handler makes: threads, processes, mappings. So that no
handler takes the supervisor's time from the others, what took long is measured less
often. Processor time counts: waiting for a processor costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp
from time import thread_time

FILL_BYTES_PER_S = 8 * 2**30
"""Faster than any process was seen to fill memory: 256 MiB took 35 ms."""
SAMPLE_MIN_S = 0.002
SAMPLE_GROWING_S = 0.001
"""Instead, while it grows: numpy's huge pages fill 30 MiB in a few milliseconds."""
SAMPLE_MAX_S = 0.1
TOGETHER_MIN_S = 0.004
"""A child nearer to its limit is sampled when its own time comes."""
BACKSTOP_SLACK_BYTES = 64 * 2**20
"""With less than this left, OpenBLAS hangs instead of failing."""
EXPENSIVE_S = 0.005
"""A cheaper measurement is repeated on every request."""
REST_FACTOR = 10
"""An expensive one pauses for so many times as long as it took."""
NEAR_REST_FACTOR = 3
"""Used instead while a limit may have been passed since."""


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


def together_s(now_s: float, wait_s: float) -> float:
    """Return when to sample a child that may wait: at a moment that others have too.

    Each turn of the loop costs more than a sample. The moments are multiples of a power
    of two, a quarter to a half of the wait: none waits longer than it may.

    Args:
        now_s: monotonic time.
        wait_s: the longest wait, as `next_sample_s` says.
    """
    if wait_s < TOGETHER_MIN_S:
        return now_s + wait_s
    grid_s = 2.0 ** (frexp(wait_s)[1] - 2)
    return (now_s + wait_s) // grid_s * grid_s


def backstop_bytes(limit_bytes: int) -> int:
    """Return how much data a child may have on top of what it starts with.

    Loose on purpose: the limit itself is enforced from outside. This bound makes an
    allocation far beyond the limit fail at once with a MemoryError.

    Args:
        limit_bytes: the highest memory limit of any attempt in the child.
    """
    return 2 * limit_bytes + BACKSTOP_SLACK_BYTES


class CostLimiter:
    """One measurement: how long it took last time, and when that was.

    Args:
        expensive_s: a measurement that takes longer is expensive.
        clock: measures its duration; None: the processor time of this thread.
    """

    def __init__(
        self, expensive_s: float = EXPENSIVE_S, clock: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock or thread_time
        self._expensive_s = expensive_s
        self._took_s = self._made_s = self._began_s = 0.0

    def is_due(self, now_s: float, *, near: bool = False) -> bool:
        """Say whether the measurement may be made (again).

        Args:
            now_s: monotonic time.
            near: a limit may have been passed since.
        """
        if self._took_s <= self._expensive_s:
            return True
        factor = NEAR_REST_FACTOR if near else REST_FACTOR
        return now_s >= self._made_s + factor * self._took_s

    def begin(self) -> None:
        """Note that the measurement begins."""
        self._began_s = self._clock()

    def end(self, now_s: float) -> None:
        """Note that the measurement has ended."""
        self._took_s, self._made_s = self._clock() - self._began_s, now_s

    def forget(self) -> None:
        """Make it due at once: its cost may have changed."""
        self._took_s = 0.0
