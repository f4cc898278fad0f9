"""How often to repeat a measurement that may be expensive.

What a measurement costs grows with what a handler makes: threads, processes, mappings.
So that no handler takes the supervisor's time from the others, what has taken long is
measured less often. By processor time: waiting for a processor makes nothing expensive.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

EXPENSIVE_S = 0.005
"""A cheaper measurement is repeated whenever it is asked for."""
REST_FACTOR = 10
"""An expensive one is not repeated before so many times as long as it took."""
NEAR_REST_FACTOR = 3
"""Instead, while a memory limit may have been passed since."""


class CostLimiter:
    """One measurement: what it took the last time, and when that was.

    Args:
        expensive_s: a measurement that takes longer is expensive.
        clock: the time that it takes; None: the processor time of this thread.
    """

    def __init__(
        self, expensive_s: float = EXPENSIVE_S, clock: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock or thread_time
        self._expensive_s = expensive_s
        self._took_s = self._made_s = self._began_s = 0.0

    def is_due(self, now_s: float, *, near: bool = False) -> bool:
        """Say whether it may be made (again).

        Args:
            now_s: monotonic time.
            near: a limit may have been passed since.
        """
        if self._took_s <= self._expensive_s:
            return True
        factor = NEAR_REST_FACTOR if near else REST_FACTOR
        return now_s >= self._made_s + factor * self._took_s

    def begin(self) -> None:
        """It is made now."""
        self._began_s = self._clock()

    def end(self, now_s: float) -> None:
        """It has been made."""
        self._took_s, self._made_s = self._clock() - self._began_s, now_s

    def forget(self) -> None:
        """What it takes may have changed: it may be made at once."""
        self._took_s = 0.0
