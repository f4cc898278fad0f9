"""Bugs of the store, to plant in the simulation."""

from __future__ import annotations

from typing import Any

import msgspec

from jobpool.store.memory import lease as memory_leasing
from jobpool.store.memory import settle as memory_settling
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.enqueue import Enqueueing
from jobpool.store.memory.runs import RunKeeping
from jobpool.store.records.jobs import Receipt
from planted_bugs.bug import Promise
from simulation.completing import Completions
from simulation.planting import Change, breaks, nothing

replace = msgspec.structs.replace


@breaks(Promise.FENCED)
def settle_whatever_the_token() -> list[Change]:
    right = memory_settling.Settling._settle_one

    def wrong(self: Any, s: Any, now_ms: int) -> Receipt:
        row = self._database.jobs.get(s.id)
        if row is not None and row.held is not None:
            s = replace(s, token=row.held.token)
        return right(self, s, now_ms)

    return [(memory_settling.Settling, "_settle_one", wrong)]


@breaks(Promise.FENCED)
def same_token_twice() -> list[Change]:
    def wrong(self: Any) -> int:
        self._last_token += 1
        return (self._last_token + 1) // 2

    return [(MemoryDatabase, "take_token", wrong)]


@breaks(Promise.BOUNDED_PATHS)
def returns_are_counted() -> list[Change]:
    right = memory_settling._handed_back

    def wrong(row: Any, held: Any, s: Any, now_ms: int) -> Any:
        return replace(right(row, held, s, now_ms), attempt=row.attempt)

    return [(memory_settling, "_handed_back", wrong)]


@breaks(Promise.BOUNDED_PATHS)
def cancel_is_forgotten() -> list[Change]:
    right = memory_settling._moved

    def wrong(row: Any, held: Any, *others: Any) -> Any:
        return right(row, replace(held, cancel_requested=False), *others)

    return [(memory_settling, "_moved", wrong)]


@breaks(Promise.FENCED)
def keys_are_not_looked_up() -> list[Change]:
    return [(Enqueueing, "_held", nothing)]


@breaks(Promise.FENCED)
def stale_ends_are_not_counted() -> list[Change]:
    return [(MemoryDatabase, "count_stale", nothing)]


@breaks(Promise.LATE_OVERLAP)
def the_renewed_are_seized() -> list[Change]:
    right = RunKeeping.expired_runs

    def wrong(self: Any) -> list[Any]:
        return right(self) or self._open_runs()

    return [
        (RunKeeping, "seize", lambda _self, _run_id, **_named: True),
        (RunKeeping, "expired_runs", wrong),
    ]


@breaks(Promise.BOUNDED_PATHS)
def promote_too_late() -> list[Change]:
    return [(memory_leasing.Leasing, "_promote_due", nothing)]


@breaks(Promise.FENCED)
def the_outdated_get_jobs() -> list[Change]:
    return [(MemoryDatabase, "is_outdated", lambda _self, _run: False)]


@breaks(Promise.FENCED)
def complete_whatever_the_token() -> list[Change]:
    def wrong(self: Any, frame: Any) -> Any:
        row = self._database.jobs.get(frame.id)
        return None if row is None else row.held

    return [(Completions, "_held", wrong)]
