"""Lanes: the runnable jobs of kinds that quotas concern, by what they count by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from jobpool.core.rules.quotas.lanes import again, lane_id, value_at
from jobpool.core.rules.quotas.rules import Rules, Use, rules
from jobpool.errors import UsageError
from jobpool.store.memory.tables.ordered_set import RankSet
from jobpool.store.memory.tables.rows import Row

NO_RULES = rules((), now_ms=0, version=0)


class ShareKey(NamedTuple):
    """Whose share of the starts of a priority it is, in a fair pool."""

    pool: str
    priority: int
    who: str


class Lane:
    """Jobs of a pool, kind, priority and tenant that use the same buckets.

    Attributes:
        uses: those buckets.
        jobs: in the order in which they are leased; never empty.
    """

    __slots__ = ("id", "jobs", "kind", "pool", "priority", "tenant", "uses")

    def __init__(self, lane: int, row: Row, uses: tuple[Use, ...]) -> None:
        self.id = lane
        self.pool = row.new.pool
        self.kind = row.new.kind
        self.priority = row.new.priority
        self.tenant = row.new.tenant
        self.uses = uses
        self.jobs = RankSet()


class LaneIndex:
    """The lanes that have jobs. It derives them from rows and rules, and stores none.

    Attributes:
        rules: those by which it is arranged.
    """

    def __init__(self) -> None:
        self.rules: Rules = NO_RULES
        self._by_place: defaultdict[tuple[str, str], dict[int, Lane]] = defaultdict(
            dict
        )
        self._of: dict[int, Lane] = {}

    def of_kind(self, pool: str, kind: str) -> Iterable[Lane]:
        """Return the lanes of a kind in a pool."""
        return self._by_place.get((pool, kind), {}).values()

    def __iter__(self) -> Iterator[Lane]:
        for lanes in self._by_place.values():
            yield from lanes.values()

    def of_job(self, job_id: int) -> Lane | None:
        """Return the lane of a runnable job; None: it is in none."""
        return self._of.get(job_id)

    def arrange(self, in_force: Rules, runnable: Iterable[tuple[int, Row]]) -> None:
        """Make all lanes anew.

        Args:
            in_force: the rules.
            runnable: all runnable jobs with their ranks.
        """
        self.rules = in_force
        self._by_place.clear()
        self._of.clear()
        if not in_force.is_empty:
            for rank, row in runnable:
                self.enter(rank, row)

    def enter(self, rank: int, row: Row) -> None:
        """Add a job that has become runnable, if rules concern its kind."""
        new = row.new
        if not self.rules.is_laned(new.pool, new.kind):
            return
        values = self.values_of(row)
        number = lane_id(new.pool, new.kind, new.priority, new.tenant, values)
        has_failed = row.spent.failures + row.spent.crashes > 0
        if is_retry := has_failed and self.rules.is_budgeted(new.kind):
            number = again(number)
        lanes = self._by_place[new.pool, new.kind]
        if number not in lanes:
            uses = self.rules.uses(new.kind, new.tenant, values, again=is_retry)
            lanes[number] = Lane(number, row, uses)
        lanes[number].jobs.add(rank)
        self._of[row.id] = lanes[number]

    def leave(self, rank: int, row: Row) -> None:
        """Remove a job that is no longer runnable."""
        lane = self._of.pop(row.id, None)
        if lane is None:
            return
        lane.jobs.discard(rank)
        if not lane.jobs:
            del self._by_place[lane.pool, lane.kind][lane.id]

    def values_of(self, row: Row) -> dict[str, str]:
        """Return what a job counts by: as it was stamped, else as its arguments say."""
        paths = self.rules.counted_paths(row.new.kind)
        if not paths:
            return {}
        stamped = row.new.quota_values or {}
        arguments: Mapping[str, object] = {}
        if row.new.codec is None and not stamped.keys() >= set(paths):
            arguments = _decoded(row.new.payload)
        return {
            path: stamped[path] if path in stamped else _value(path, arguments)
            for path in paths
        }


def _decoded(payload: bytes) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(payload, type=dict[str, object])
    except msgspec.DecodeError:
        return {}


def _value(path: str, arguments: Mapping[str, object]) -> str:
    """Return a value that nobody has stamped; what cannot be counted by is ``""``."""
    try:
        return value_at(path, arguments)
    except UsageError:
        return ""
