"""Whose turn it is in fair and aged pools, and what starts cost the shares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

from jobpool.core.rules.quotas.allot import LaneState
from jobpool.core.rules.quotas.rules import Rules
from jobpool.core.rules.quotas.shares import Share, aged_ms, effective, last_turn
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.tables.lanes import Lane, ShareKey
from jobpool.store.memory.tables.ordered_set import oldest_ms, priority_of
from jobpool.store.memory.tables.rows import Row


class Head(NamedTuple):
    """A job of a lane that may begin now; they sort as they are to be leased.

    In a pool that is neither fair nor aged, that is by rank alone.
    """

    order: int
    """Of its priority among the others."""
    turn: float
    """Of its share, or its age."""
    rank: int
    lane: Lane
    begin_within_s: float | None


class Found(NamedTuple):
    """What may begin of a lane."""

    state: LaneState
    lane: Lane
    ranks: Sequence[int]
    begin_within_s: float | None


class Turns:
    """What fair and aged pools say within one call of `Store.lease`."""

    def __init__(self, database: MemoryDatabase, rules: Rules) -> None:
        self._database = database
        self._rules = rules
        self._last: dict[tuple[str, int], float] = {}
        """By pool and priority: the last turn that was taken."""

    def state(self, lane: Lane, rank: int, jobs: int = 1) -> LaneState:
        """Return a lane for the rules; the longer its first job is due, the earlier.

        Args:
            lane: which.
            rank: of its first job.
            jobs: how many may begin.
        """
        share = self._share(lane) if self._rules.fair(lane.pool) else None
        due_ms = float(oldest_ms((rank,)))
        return LaneState(
            lane.id, lane.pool, lane.kind, lane.priority, due_ms, lane.uses, share, jobs
        )

    def by_age(
        self, lanes: Iterable[LaneState], jobs: Mapping[int, Sequence[int]], want: int
    ) -> Iterator[LaneState]:
        """Yield those lanes of an aged pool that its next jobs are of.

        Without shares these are the jobs that have risen highest. With shares, only the
        priorities take turns by that: each has the turn of its first job.

        Args:
            lanes: those that nothing blocks.
            jobs: the first ones of each, as ranks, the next first; never none.
            want: most jobs.
        """
        aged = [
            (lane, [(self._aged_ms(lane, rank), rank) for rank in jobs[lane.id]])
            for lane in lanes
        ]
        if any(lane.share for lane, _ in aged):
            first = dict[int, tuple[float, int]]()
            for lane, of_lane in aged:
                first[lane.rank] = min(first.get(lane.rank, of_lane[0]), of_lane[0])
            by_first = sorted(first, key=first.__getitem__)
            order = {priority: place for place, priority in enumerate(by_first)}
            for lane, _ in aged:
                yield lane._replace(rank=-order[lane.rank])
            return
        following = islice(merge(*(of_lane for _, of_lane in aged)), want)
        last = max(following, default=None)
        for lane, of_lane in aged:
            if count := sum(last is not None and job <= last for job in of_lane):
                yield lane._replace(rank=0, vtime=of_lane[0][0], jobs=count)

    def heads(self, found: Iterable[Found]) -> list[Head]:
        """Return jobs that may begin, in the order in which they are to be leased."""
        heads = []
        shares: defaultdict[tuple[int, Share], list[tuple[int, Found]]]
        shares = defaultdict(list)
        for one in found:
            state, share = one.state, one.state.share
            if share is not None:
                ranked = ((rank, one) for rank in one.ranks)
                shares[state.rank, share].extend(ranked)
                continue
            is_aged = self._rules.aging_ms(state.pool) > 0
            for rank in one.ranks:
                age = self._aged_ms(one.state, rank) if is_aged else 0.0
                heads.append(Head(0, age, rank, one.lane, one.begin_within_s))
        for (order, share), jobs in shares.items():
            for place, (rank, one) in enumerate(sorted(jobs, key=lambda job: job[0])):
                turn = last_turn(share, place + 1)
                heads.append(Head(-order, turn, rank, one.lane, one.begin_within_s))
        return sorted(heads)

    def take(self, lane: Lane) -> None:
        """Charge the share of a lane for a start."""
        if not self._rules.fair(lane.pool):
            return
        share, at = self._share(lane), (lane.pool, lane.priority)
        key = ShareKey(lane.pool, lane.priority, share.who)
        self._database.put(self._database.shares, key, share.vtime + 1 / share.weight)
        self._last[at] = max(self._last.get(at, share.vtime), share.vtime)

    def set_clocks(self) -> None:
        """Let virtual time pass, once everything is leased."""
        clocks = self._database.clocks
        for at, turn in self._last.items():
            if turn > clocks.get(at, 0.0):
                self._database.put(clocks, at, turn)

    def _share(self, lane: Lane) -> Share:
        who = self._rules.who(lane.pool, lane.kind, lane.tenant)
        vtime = self._database.shares.get(ShareKey(lane.pool, lane.priority, who), 0.0)
        clock = self._database.clocks.get((lane.pool, lane.priority), 0.0)
        weight = self._rules.weight(lane.pool, lane.kind, lane.tenant)
        return Share(who, effective(vtime, clock), weight)

    def _aged_ms(self, lane: LaneState, rank: int) -> float:
        aging_ms = self._rules.aging_ms(lane.pool)
        return aged_ms(priority_of(rank), oldest_ms((rank,)), aging_ms)


def give_back(database: MemoryDatabase, rules: Rules, row: Row) -> None:
    """Give a start that never was back to its share, within a transaction."""
    new = row.new
    if not rules.fair(new.pool):
        return
    who = rules.who(new.pool, new.kind, new.tenant)
    key = ShareKey(new.pool, new.priority, who)
    vtime = database.shares.get(key)
    if vtime is not None:
        step = 1 / rules.weight(new.pool, new.kind, new.tenant)
        database.put(database.shares, key, max(0.0, vtime - step))


def forget_shares(database: MemoryDatabase) -> None:
    """Delete the shares of which the clocks say no less."""
    for key, vtime in list(database.shares.items()):
        if vtime <= database.clocks.get((key.pool, key.priority), 0.0):
            database.put(database.shares, key, None)
