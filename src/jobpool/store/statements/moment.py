"""When things happened by the store's clock, from how long ago they did.

A settlement may wait for its commit: for others, or for a store that is away. What it
tells of happened when it happened, so its times are counted back from the moment at
which it is written. The durations are this machine's, the moment is the store's.
"""

from __future__ import annotations

from typing import NamedTuple

from jobpool.core.jobs.job import Settlement

LATE_MAX_MS = 60_000
"""An end that is written later than that is shown as of so long before: how long a
job is kept counts from its end, and nobody has seen it yet."""


class Moment(NamedTuple):
    """The present one, by two clocks."""

    ms: int
    """The store's: milliseconds since 1970, UTC."""
    s: float
    """This machine's `Clock.boottime_s`."""

    def of(self, then_s: float) -> int:
        """Return by the store's clock what has passed by this machine's."""
        return self.ms - _in_ms(self.s - then_s)

    def of_attempt(self, ended: Settlement) -> tuple[int | None, int]:
        """Return when an attempt began (None: nobody knows), and when it ended."""
        if ended.ended_s is None:
            return None, self.ms
        passed_ms = _in_ms(self.s - ended.ended_s)
        end_ms = self.ms - min(passed_ms, LATE_MAX_MS)
        if ended.began_s is None:
            return None, end_ms
        # Counted back from the end: their distance is rounded once.
        return self.ms - passed_ms - _in_ms(ended.ended_s - ended.began_s), end_ms


def _in_ms(passed_s: float) -> int:
    return int(1000 * passed_s + 0.5) if passed_s > 0 else 0
