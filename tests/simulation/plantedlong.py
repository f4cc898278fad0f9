"""Bugs that only time shows, to plant in the simulation: seeds of days see them."""

from __future__ import annotations

from typing import Any

import msgspec

from jobpool.core.jobs.outcome import CHARGES
from jobpool.core.rules import lifecycle
from jobpool.store.memory.enqueue import Enqueueing
from jobpool.store.memory.runs import RunKeeping
from planted_bugs.bug import Promise
from simulation.planting import Change, breaks

HOUR_MS = 3_600_000


@breaks(Promise.BOUNDED_PATHS)
def crashes_are_never_forgotten() -> list[Change]:
    def wrong(_policy: Any, history: Any, _now_ms: int) -> int:
        return sum(CHARGES[past.outcome].crash for past in history)

    return [(lifecycle, "crashes_in_window", wrong)]


@breaks(Promise.DURABLE)
def dead_letters_go_with_the_rest() -> list[Change]:
    right = RunKeeping.prune

    def wrong(self: Any, retention: Any, limit: int = 1000) -> int:
        same = msgspec.structs.replace(retention, dead_s=retention.succeeded_s)
        return right(self, same, limit)

    return [(RunKeeping, "prune", wrong)]


@breaks(Promise.BOUNDED_DATA)
def nothing_is_deleted() -> list[Change]:
    return [(RunKeeping, "_delete_old", lambda _self, _state, _before_ms, _limit: 0)]


@breaks(Promise.FENCED)
def keys_are_forgotten_in_an_hour() -> list[Change]:
    right = Enqueueing._held

    def wrong(self: Any, job: Any, first_id: int) -> Any:
        held = right(self, job, first_id)
        now_ms = self._clock.utc_ms()
        is_old = held is not None and held.created_at_ms + HOUR_MS < now_ms
        return None if is_old else held

    return [(Enqueueing, "_held", wrong)]
