"""The seam for time: nothing else in jobpool's core reads a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from; simulations and tests bring their own."""

    def utc_ms(self) -> int:
        """Return the wall clock: milliseconds since 1970, UTC. May jump."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that only ever grow; for durations and deadlines."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def utc_ms(self) -> int:
        """Return the wall clock: milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds of CLOCK_MONOTONIC."""
        return time.monotonic()
