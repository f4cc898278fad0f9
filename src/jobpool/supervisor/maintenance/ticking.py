"""Ticking: this supervisor's share in keeping schedules.

Every supervisor does all of it, since none is a leader that could be lost. The store
sees to it that each tick has one job (`store.operations.schedules`), and that of an
application's versions the newest living one says which schedules there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jobpool.core.clock import Clock
from jobpool.core.events.event import Event
from jobpool.core.events.schedules import (
    SchedulePaused,
    ScheduleRefused,
    SchedulesChanged,
    TicksMissed,
)
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.errors import FeatureHeldBack
from jobpool.store.protocol import Store
from jobpool.store.records.schedules import Notice, Published, Ticked
from jobpool.supervisor.storage.inbox import Posts

TICK_EVERY_S = 1.0
"""How soon a schedule is seen that others have put."""
AT_ONCE_S = 0.01
"""What is due so soon is due now; settlements are written before it."""
PUBLISH_EVERY_S = 30.0
"""How soon an older version's schedules are back after a rollback."""
_TAKEN = (
    "another application has a schedule of this name, or it was put at run time; give "
    "this one another name, or, if that one is not needed any more, remove it: jobpool "
    "schedules remove NAME"
)


class Ticking:
    """Makes the steps of schedules, and publishes what the application declares.

    Used in the store thread only, but for `declared`.

    Args:
        run_id: this supervisor's run.
        clock: for the times of events.
    """

    def __init__(self, run_id: str, clock: Clock) -> None:
        self.declared: Sequence[Declared] = ()
        """What the application declares now."""
        self._run_id = run_id
        self._clock = clock
        self._stored: Sequence[Declared] | None = None
        """What was stored the last time."""
        self._refused: Mapping[str, str] = {}
        """Those that are not stored, and why."""

    def publish(self, store: Store) -> Posts:
        """Store what the application declares, unless newer code of it is living."""
        try:
            declared = self.declared
            found = store.publish_schedules(
                self._run_id, declared, again=declared is self._stored
            )
        except FeatureHeldBack as exc:  # Tried again: the older supervisors will end.
            return tuple(self._refusals({one.name: str(exc) for one in self.declared}))
        self._stored = declared if found.is_newest else None
        return tuple(self._published(found))

    def tick(self, store: Store) -> tuple[Posts, float]:
        """Enqueue what is due; return what to report, and the seconds to the next."""
        done = store.tick()
        if done.enqueued:
            store.wake()
        return tuple(self._ticked(done)), _pause_s(done)

    def _published(self, found: Published) -> Iterator[Event]:
        now_ms = self._clock.utc_ms()
        if found.added or found.changed or found.retired:
            yield SchedulesChanged(
                at_ms=now_ms,
                added=found.added,
                changed=found.changed,
                retired=found.retired,
            )
        yield from self._refusals(dict.fromkeys(found.refused, _TAKEN))

    def _refusals(self, refused: Mapping[str, str]) -> Iterator[Event]:
        """Report, once, why schedules are not stored."""
        for name, why in refused.items():
            if self._refused.get(name) != why:
                yield ScheduleRefused(
                    at_ms=self._clock.utc_ms(), schedule=name, reason=why
                )
        self._refused = refused

    def _ticked(self, done: Ticked) -> Iterator[Event]:
        now_ms = self._clock.utc_ms()
        for notice in done.notices:
            yield from _events(notice, now_ms)


def _events(notice: Notice, now_ms: int) -> Iterator[Event]:
    name = notice.name
    if notice.missed or notice.late_ms:
        late_s = notice.late_ms / 1000
        yield TicksMissed(
            at_ms=now_ms, schedule=name, missed=notice.missed, late_s=late_s
        )
    if notice.paused:
        yield SchedulePaused(at_ms=now_ms, schedule=name, reason=notice.paused)
    if notice.unplanned:
        yield ScheduleRefused(at_ms=now_ms, schedule=name, reason=notice.unplanned)


def _pause_s(done: Ticked) -> float:
    if done.next_due_in_s is None:
        return TICK_EVERY_S
    return min(max(done.next_due_in_s, AT_ONCE_S), TICK_EVERY_S)
