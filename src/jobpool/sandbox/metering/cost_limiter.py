"""How often to repeat a measurement that may be expensive.

The cost of a measurement grows with what a handler makes: threads, processes, mappings.
So that no handler takes the supervisor's time from the others, what took long is
measured less often. Processor time counts: waiting for a processor costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

EXPENSIVE_S = 0.005
"""A cheaper measurement is repeated on every request."""
REST_FACTOR = 10
"""An expensive one pauses for so many times as long as it took."""
NEAR_REST_FACTOR = 3
"""Used instead while a limit may have been passed since."""


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
