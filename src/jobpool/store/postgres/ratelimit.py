"""How often a process may ring: now and then at once, but never a storm."""

from __future__ import annotations


class RateLimit:
    """A token bucket.

    Args:
        per_s: how many are allowed a second, in the long run.
        at_once: how many are allowed together after a rest.
    """

    def __init__(self, per_s: float, at_once: int) -> None:
        self._per_s = per_s
        self._at_once = at_once
        self._left = float(at_once)
        self._taken_s = float("-inf")

    def take(self, now_s: float) -> bool:
        """Say whether one more is allowed now; if so it counts.

        Args:
            now_s: monotonic time.
        """
        gained = (now_s - self._taken_s) * self._per_s
        left = min(self._left + gained, float(self._at_once))
        if left < 1:
            return False
        self._left = left - 1
        self._taken_s = now_s
        return True
