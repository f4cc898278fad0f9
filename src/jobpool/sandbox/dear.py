"""How often to repeat a measurement that may be dear.

What a look costs grows with what a handler makes: threads, processes, mappings. So
that none takes its supervisor from the others, what has taken long is measured the
more seldom. By processor time: that others kept the processor made nothing dear.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

DEAR_S = 0.005
"""Less is repeated whenever somebody asks."""
DEAR_FACTOR = 10
"""What is dear rests for so many times as long as it took."""
NEAR_FACTOR = 3
"""Instead, while a memory limit may have been passed since."""


class Dear:
    """One measurement: what it took the last time, and when that was.

    Args:
        dear_s: what takes longer is dear.
        clock: the time that it takes; None: the processor time of this thread.
    """

    def __init__(
        self, dear_s: float = DEAR_S, clock: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock or thread_time
        self._dear_s = dear_s
        self._took_s = self._made_s = self._began_s = 0.0

    def is_due(self, now_s: float, *, near: bool = False) -> bool:
        """Say whether it may be made (again).

        Args:
            now_s: monotonic time.
            near: a limit may have been passed since.
        """
        if self._took_s <= self._dear_s:
            return True
        factor = NEAR_FACTOR if near else DEAR_FACTOR
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
