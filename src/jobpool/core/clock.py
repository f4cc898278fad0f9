"""Clock: where time comes from. Nothing else in jobpool's core reads a clock."""

from __future__ import annotations

import time
from typing import Protocol

_BOOTTIME = next(
    (
        getattr(time, name)
        for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC")
        if hasattr(time, name)
    ),
    None,
)
"""The monotonic clocks of macOS and Windows also run while they are suspended."""


class Clock(Protocol):
    """A source of time; simulations and tests bring their own."""

    def utc_ms(self) -> int:
        """Return the wall clock: milliseconds since 1970, UTC. May jump."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never decrease; for durations and deadlines.

        They do not pass while the machine is suspended.
        """
        ...

    def boottime_s(self) -> float:
        """Return seconds that also pass while the machine is suspended."""
        ...


class SystemClock:
    """The machine's clocks."""

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
    """Return seconds since boot, including those while the machine was suspended.

    All processes of a machine read the same clock.
    """
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
