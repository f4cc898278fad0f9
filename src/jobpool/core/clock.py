"""The seam for time: nothing else in jobpool's core reads a clock."""

from __future__ import annotations

import time
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""macOS' monotonic clock goes on by itself."""


class Clock(Protocol):
    """Where time comes from; simulations and tests bring their own."""

    def utc_ms(self) -> int:
        """Return the wall clock: milliseconds since 1970, UTC. May jump."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that only ever grow; for durations and deadlines.

        They stand still while the machine is suspended.
        """
        ...

    def boottime_s(self) -> float:
        """Return seconds that also pass while the machine is suspended."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def utc_ms(self) -> int:
        """Return the wall clock: milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    def boottime_s(self) -> float:
        """Return seconds of CLOCK_BOOTTIME."""
        return boottime_s()


def boottime_s() -> float:
    """Return seconds since boot, those included that the machine was suspended.

    Every process of a machine reads the same.
    """
    return time.clock_gettime(_BOOTTIME)
