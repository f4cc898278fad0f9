"""Converts times of this machine's clock to the store's clock.

A settlement may wait for its commit: for others, or for a store that cannot be reached.
So its times are counted back from the moment at which it is written: the durations are
this machine's, the moment is the store's.
"""

from __future__ import annotations

from typing import NamedTuple

from jobpool.core.jobs.job import Settlement

LATE_MAX_MS = 60_000
"""An end is dated back by at most this much: retention counts from a job's end, and
the result is invisible before that."""


class Moment(NamedTuple):
    """The present, by two clocks."""

    ms: int
    """The store's: milliseconds since 1970, UTC."""
    s: float
    """This machine's `Clock.boottime_s`."""

    def of(self, then_s: float) -> int:
        """Convert a past time of this machine's clock to the store's."""
        return self.ms - _in_ms(self.s - then_s)

    def of_attempt(self, ended: Settlement) -> tuple[int | None, int]:
        """Return when an attempt began (None: unknown), and when it ended."""
        if ended.ended_s is None:
            return None, self.ms
        passed_ms = _in_ms(self.s - ended.ended_s)
        end_ms = self.ms - min(passed_ms, LATE_MAX_MS)
        if ended.began_s is None:
            return None, end_ms
        # Counted back from the end, so that the duration is rounded only once.
        return self.ms - passed_ms - _in_ms(ended.ended_s - ended.began_s), end_ms


def _in_ms(passed_s: float) -> int:
    return int(1000 * passed_s + 0.5) if passed_s > 0 else 0
