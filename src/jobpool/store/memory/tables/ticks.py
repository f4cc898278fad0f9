"""The ticks of schedules."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.schedules.schedule import TickState


class Tick(msgspec.Struct, frozen=True, gc=False):
    """A tick of a schedule. Fields that `records.TickRow` also has mean the same."""

    id: int
    schedule: int
    nominal_ms: int
    stored_ms: int
    state: TickState
    job_id: int | None = None
    job_state: JobState | None = None
    backfilled: bool = False
    ended_ms: int | None = None


class TickTable:
    """All ticks.

    Attributes:
        of: ids by nominal time, by schedule.
        open: ids of those that have not ended, by schedule.
    """

    def __init__(self) -> None:
        self._rows: dict[int, Tick] = {}
        self._last_id = 0
        self.of: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.open: defaultdict[int, set[int]] = defaultdict(set)

    def get(self, tick_id: int, /) -> Tick | None:
        """See `Table.get`."""
        return self._rows.get(tick_id)

    def take_id(self) -> int:
        """Return a fresh id."""
        self._last_id += 1
        return self._last_id

    def put(self, tick_id: int, tick: Tick | None) -> None:
        """See `Table.put`."""
        former = self._rows.pop(tick_id, None)
        if former is not None:
            del self.of[former.schedule][former.nominal_ms]
            self.open[former.schedule].discard(tick_id)
        if tick is not None:
            self._rows[tick_id] = tick
            self.of[tick.schedule][tick.nominal_ms] = tick_id
            if tick.ended_ms is None:
                self.open[tick.schedule].add(tick_id)

    def last(self, schedule: int) -> Tick | None:
        """Return a schedule's tick with the latest nominal time."""
        times = self.of.get(schedule)
        return self._rows[times[max(times)]] if times else None

    def unended(self, schedule: int) -> list[Tick]:
        """Return what of a schedule has not ended, oldest first."""
        ticks = (self._rows[tick_id] for tick_id in self.open.get(schedule, ()))
        return sorted(ticks, key=lambda tick: tick.nominal_ms)

    def skipped(self, before_ms: int) -> list[Tick]:
        """Return those that were skipped before a moment, oldest first."""
        ticks = (t for t in self._rows.values() if t.state is TickState.SKIPPED)
        old = (tick for tick in ticks if (tick.ended_ms or 0) < before_ms)
        return sorted(old, key=lambda tick: tick.ended_ms or 0)
