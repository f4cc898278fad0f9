"""A clock that only the test advances."""

from __future__ import annotations

from jobpool.core.units import DurationLike, duration_s


class FakeClock:
    """A `jobpool.core.clock.Clock` that only the test advances.

    Args:
        utc_ms: the wall clock's initial time, in milliseconds since 1970.
    """

    def __init__(self, utc_ms: int = 1_767_225_600_000) -> None:
        self._utc_ms = float(utc_ms)
        self._monotonic_s = 0.0

    def utc_ms(self) -> int:
        """Return the wall clock."""
        return int(self._utc_ms)

    def monotonic_s(self) -> float:
        """Return seconds that never decrease."""
        return self._monotonic_s

    def boottime_s(self) -> float:
        """Return the same seconds: this machine is never suspended."""
        return self._monotonic_s

    def advance(self, duration: DurationLike) -> None:
        """Advance both clocks."""
        passed_s = duration_s(duration, "duration")
        self._monotonic_s += passed_s
        self._utc_ms += passed_s * 1000

    def jump(self, seconds: float) -> None:
        """Set only the wall clock, forward or, if negative, back."""
        self._utc_ms += seconds * 1000
