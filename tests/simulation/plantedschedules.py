"""Bugs of schedules, to plant in the simulation."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from unittest.mock import ANY

import msgspec

from jobpool.core.rules.schedules import plan as planning
from jobpool.core.rules.schedules import turns
from jobpool.core.rules.schedules.policy import Decision
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.store.memory import schedules as keeping
from jobpool.store.memory.schedules import ScheduleKeeping
from jobpool.store.operations.schedules import step as stepping
from planted_bugs.bug import Promise
from simulation.planting import Change, breaks
from simulation.store import SimStore

replace = msgspec.structs.replace


@breaks(Promise.SCHEDULED)
def ticks_are_not_unique() -> list[Change]:
    add, plan = ScheduleKeeping._add, stepping.plan

    def wrong(self: Any, new: Any, now_ms: int) -> Any:
        self._database.ticks.of[new.schedule].pop(new.nominal_ms, None)
        return add(self, new, now_ms)

    def blind(state: Any, *given: Any, **named: Any) -> Any:
        """Plan as if there were no ticks: else nobody would add one twice."""
        return plan(replace(state, known_ms=()), *given, **named)

    return [(ScheduleKeeping, "_add", wrong), (stepping, "plan", blind)]


@breaks(Promise.SCHEDULED)
def ticks_are_counted_from_now() -> list[Change]:
    return [(planning, "_dealt_with", lambda _state, now_ms: now_ms - 1)]


@breaks(Promise.SCHEDULED)
def a_jump_of_the_clock_silences() -> list[Change]:
    def wrong(state: Any, _now_ms: int) -> int:
        return max(state.since_ms, state.last_ms or 0)

    return [(planning, "_dealt_with", wrong)]


@breaks(Promise.SCHEDULED)
def every_version_publishes() -> list[Change]:
    return [(keeping, "newest_version", lambda _seen_ms: ANY)]


@breaks(Promise.SCHEDULED)
def retired_schedules_go_on() -> list[Change]:
    return [(keeping, "retired", lambda stored, _now_ms: stored)]


@breaks(Promise.SCHEDULED)
def pauses_are_not_minded() -> list[Change]:
    right = stepping._state

    def wrong(*args: Any) -> Any:
        return replace(right(*args), paused_until_ms=None)

    def paused(stored: Any, now_ms: int, *_others: Any) -> Any:
        return replace(stored, paused_at_ms=now_ms, paused_until_ms=2**50)

    return [(stepping, "_state", wrong), (keeping, "paused", paused)]


@breaks(Promise.SCHEDULED)
def overlap_is_not_minded() -> list[Change]:
    starts = defaultdict(lambda: Decision.START)
    return [(turns, "DECISIONS", starts)]


@breaks(Promise.SCHEDULED)
def buffered_ticks_stay() -> list[Change]:
    return [(turns.Turns, "start_buffered", lambda _self: None)]


@breaks(Promise.SCHEDULED)
def a_tick_and_its_job_are_two_transactions() -> list[Change]:
    tick, begin = SimStore.tick, ScheduleKeeping._begin
    late: list[Any] = []

    def without_job(self: Any, new: Any, *job: Any) -> int:
        opened = replace(new, state=TickState.OPEN)
        self._database.put(self._database.ticks, new.id, opened)
        late.append((opened, *job))
        return 0

    def wrong(self: Any, limit: int | None = None) -> Any:
        done = tick(self, limit)
        jobs, late[:] = late[:], []
        with self.transaction():
            for one in jobs:
                begin(self, *one)
        return done

    return [(SimStore, "tick", wrong), (ScheduleKeeping, "_begin", without_job)]
