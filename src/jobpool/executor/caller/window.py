"""How many calls the host gets beyond those that its children run. Pure.

A call that is with the host counts as running and cannot be canceled. So the host gets
few while calls are slow, and enough to keep it busy while they are fast.
"""

from __future__ import annotations

from collections import deque

RECENT_S = 0.06
"""The host gets about as many calls as have ended in this time."""
CALLS_MAX = 1024
BYTES_MAX = 64 * 2**20
"""The most calls that are with the host."""
RECALL_AFTER_S = 0.05
RECALL_LAST_S = 1.0
NEVER_S = float("inf")


class Window:
    """The pace of one host.

    Args:
        workers: how many calls it can run at once.
    """

    def __init__(self, workers: int) -> None:
        self._base = workers + 1
        self._recent: deque[tuple[float, int]] = deque()
        self._recent_calls = 0
        self._pause_s = RECALL_AFTER_S
        self._moved_s = 0.0
        """When calls last ended or were recalled, or when the first one was sent."""

    def room(self, now_s: float, out: int) -> int:
        """Return how many more calls the host may have.

        Args:
            now_s: monotonic time.
            out: how many it has already.
        """
        while self._recent and self._recent[0][0] < now_s - RECENT_S:
            self._recent_calls -= self._recent.popleft()[1]
        most = min(CALLS_MAX, self._base + 2 * self._recent_calls)
        return most - out

    def sent(self, now_s: float, out: int) -> None:
        """Note that calls were sent; the host had *out* before."""
        if out < self._base:
            self._moved_s = now_s

    def ended(self, now_s: float, calls: int) -> None:
        """Note how many calls have ended."""
        self._recent.append((now_s, calls))
        self._recent_calls += calls
        self._moved_s = now_s
        self._pause_s = RECALL_AFTER_S

    def recall_at_s(self, out: int) -> float:
        """Return when to recall the calls that the host has not begun."""
        return self._moved_s + self._pause_s if out > self._base else NEVER_S

    def recalled(self, now_s: float) -> None:
        """Note a recall; while nothing ends, the next ones come less and less often."""
        self._moved_s = now_s
        self._pause_s = min(RECALL_LAST_S, self._pause_s * 2)
