"""Read what pages share; a store in which nothing was committed is not read again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobpool.core.clock import SystemClock
from jobpool.core.jobs.flow import FlowState
from jobpool.core.jobs.job import JobState
from jobpool.monitoring.glance.glance import Counts, Seen
from jobpool.monitoring.glance.reading import Reader, count
from jobpool.store.protocol import Store
from jobpool.store.records.alerts import Incident
from jobpool.store.records.flows import AskRow
from jobpool.store.records.reading import MINUTE_MS, MinuteRow, SketchRow
from jobpool.store.records.runs import KindRecord

HOUR_MINUTES = 60
_UNCHANGED_S = 30.0
"""So old may be what is read of a store in which nothing was committed: ages grow."""
_UNCHANGED_SHARE = 0.005
"""Of the time: the most that goes into reading again what only has grown older."""
_STUCK_MS = 3_600_000
ASKS_MAX = 20
"""So many steps that wait for somebody are told one by one."""


@dataclass(frozen=True)
class Backlog:
    """What costs more to read the more jobs there are."""

    counts: Counts
    minutes: Sequence[MinuteRow]
    """Of the last hour, oldest first."""
    flows: Mapping[str, int]
    """Unfinished ones, by state."""
    incidents: Sequence[Incident]
    concerns: Sequence[str]
    """What is wrong with the database."""
    stuck: Sequence[tuple[int, str]]
    """Flows of which nothing has moved for long: ids and names."""
    asks: Sequence[AskRow] = ()
    """Steps of flows that wait for somebody."""

    def jobs(self, *states: JobState) -> int:
        """Return how many jobs are in some states."""
        return sum(row.jobs for row in self.counts.depths if row.state in states)

    @property
    def unfinished_flows(self) -> int:
        """Flows that are open or paused."""
        return sum(self.flows.get(one, 0) for one in (FlowState.OPEN, FlowState.PAUSED))


@dataclass(frozen=True)
class Usage:
    """What kinds have used: it changes slowly."""

    sketches: Sequence[SketchRow]
    kinds: Sequence[KindRecord]


@dataclass
class Memory:
    """What a thread remembers about the store that it reads."""

    store: Store | None = None
    read_ms: int = 0
    took_s: float = 0.0

    def is_new(self, store: Store) -> bool:
        """Say whether a store may hold something else than when it was read last."""
        now_ms = SystemClock().utc_ms()
        is_changed = store.changed()  # always asked: it remembers
        if store is not self.store or is_changed or self._is_old(now_ms):
            self.store, self.read_ms = store, now_ms
            return True
        return False

    def _is_old(self, now_ms: int) -> bool:
        old_s = max(_UNCHANGED_S, self.took_s / _UNCHANGED_SHARE)
        return not 0 <= now_ms - self.read_ms < old_s * 1000


@dataclass
class Sights:
    """Reads what runs, and not again what has not changed."""

    memory: Memory = field(default_factory=Memory)
    reader: Reader | None = None

    def read(self, store: Store, last: Seen | None) -> Seen:
        """Return what runs; *last*, if nothing can have changed since."""
        is_other = store is not self.memory.store
        is_new = self.memory.is_new(store)
        if self.reader is None or is_other:
            self.reader = Reader(store)
        return self.reader.see() if last is None or is_new else last


@dataclass
class Backlogs:
    """Counts what waits and what has ended, and not again what has not changed."""

    memory: Memory = field(default_factory=Memory)
    minutes: dict[int, MinuteRow] = field(default_factory=dict)

    def read(self, store: Store, last: Backlog | None) -> Backlog:
        """Return what waits; *last*, if nothing can have changed since."""
        if store is not self.memory.store:
            self.minutes.clear()
        if not self.memory.is_new(store) and last is not None:
            return last
        began_s = time.monotonic()
        try:
            return self._counted(store)
        finally:
            self.memory.took_s = time.monotonic() - began_s

    def _counted(self, store: Store) -> Backlog:
        return Backlog(
            counts=count(store),
            minutes=self._hour(store),
            flows=store.open_flows(),
            incidents=store.incidents(),
            concerns=store.concerns(),
            stuck=store.stuck_flows(store.position().now_ms - _STUCK_MS),
            asks=store.asks(ASKS_MAX),
        )

    def _hour(self, store: Store) -> list[MinuteRow]:
        """Return the last hour; of minutes that were read whole, nothing is read."""
        now = store.position().now_ms // MINUTE_MS
        first = now - HOUR_MINUTES
        known = [minute for minute in self.minutes if first <= minute <= now]
        # What ended in the minute before may have been committed after its end.
        since = max(known) - 1 if known else first
        self.minutes = {m: row for m, row in self.minutes.items() if first <= m < since}
        for row in store.minutes(since * MINUTE_MS):
            self.minutes[row.minute] = row
        return [self.minutes[minute] for minute in sorted(self.minutes)]


def read_usage(store: Store, last: Usage | None) -> Usage:
    """Return what kinds have used."""
    del last
    return Usage(store.sketches(), store.kinds())
