"""How many jobs of which lane may begin now, and what the other lanes wait for.

All needs of a job are decided together: it begins with all its permits or takes none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from jobpool.core.rules.quotas import budget
from jobpool.core.rules.quotas.breaker import Breaker
from jobpool.core.rules.quotas.gcra import available, next_at_us
from jobpool.core.rules.quotas.rules import FOREVER_MS, Limit, Use
from jobpool.core.rules.quotas.shares import Share, deal
from jobpool.core.rules.quotas.window import Window

_UNLIMITED = 2**62


class LaneState(NamedTuple):
    """An open lane, as a claim has read it."""

    id: int
    pool: str
    kind: str
    rank: int
    """The higher goes first."""
    vtime: float
    """Among the same rank, the lower goes first."""
    uses: tuple[Use, ...]
    share: Share | None = None
    """Whose turn its jobs take, in a fair pool; such a pool has no lane without one."""
    jobs: int = _UNLIMITED
    """So many of its jobs wait, or are the next of their pool, if that was counted."""


class BucketState(NamedTuple):
    """A bucket, under its lock."""

    id: int
    limit: Limit
    in_use: int
    """Permits held of its cap."""
    tat_us: int
    """As `gcra.settled` has it: if that is less than what is stored, store it."""
    block_until_ms: int
    """A service has said so; 0 or past: it has not."""
    breaker: Breaker = Breaker()
    """Of its service, if the limit has a rule for it."""
    window: Window = Window()
    """First attempts and retries, if the limit is a budget."""


class Allotment(NamedTuple):
    """What a claim may do with a lane."""

    lane: int
    most: int
    """Jobs that may be leased from it now."""
    begin_within_s: float | None
    """A job must begin within this time of the request, or go back; None: whenever."""
    opens_at_ms: int | None
    """It is blocked until then: that is when to look at it again."""
    blocked_by: int | None
    """It is blocked until this bucket frees something, or its rules change.

    With ``most`` 0, neither `opens_at_ms` nor this, the lane stays open: what there is
    goes to others first, or may not be leased ahead.
    """


_Room = dict[int, int]
"""Permits by bucket."""


def allot(
    lanes: Iterable[LaneState],
    buckets: Mapping[int, BucketState],
    want: int,
    ahead: int,
    now_ms: int,
) -> tuple[Allotment, ...]:
    """Say what may be leased; see the module.

    The lanes are of one pool, as `want` is. Another pool's may use the same buckets:
    give `buckets` as the leases that came of the first call have left them. So do for
    another call after fewer were found than allotted.

    Lanes of the same rank get alike, the first ones more where it does not come out
    even; but those that have shares get what their shares say (`shares.deal`). A lane
    is blocked only if none of its jobs could begin even if all others got nothing:
    they may turn out to have no jobs.

    Args:
        lanes: in any order.
        buckets: by id, all that the lanes use.
        want: most jobs to lease. Each rank is allotted as many, since it is not known
            here how many wait in a lane: take the best of what is found.
        ahead: how many of them no slot is free for yet. They get at most half of what
            each bucket has.
        now_ms: the time of the claim.

    Returns:
        One for each lane, by rank and vtime.
    """
    ordered = sorted(lanes, key=lambda lane: (-lane.rank, lane.vtime, lane.id))
    room = {one.id: _jobs_or_permits(one, now_ms) for one in buckets.values()}
    blocked = {lane.id: _blocked(lane, buckets, room, now_ms) for lane in ordered}
    for_ahead = {bucket: free // 2 for bucket, free in room.items()}
    now_left = want - ahead if ahead else _UNLIMITED
    given: Counter[int] = Counter()
    for _, group in groupby(ordered, key=lambda lane: lane.rank):
        turn = _Turn(
            [lane for lane in group if blocked[lane.id] is None], buckets, now_ms
        )
        first = turn.give(max(0, min(want, now_left)), room)
        now_left -= first.total()
        spare = {bucket: min(room[bucket], for_ahead[bucket]) for bucket in room}
        later = turn.give(max(0, want - first.total()), spare)
        for lane_id, count in later.items():
            for bucket, cost in turn.costs[lane_id]:
                room[bucket] -= count * cost
                for_ahead[bucket] -= count * cost
        given += first + later
    return tuple(
        blocked[lane.id] or _open(lane, given[lane.id], buckets) for lane in ordered
    )


class _Turn:
    """The open lanes of one rank."""

    def __init__(
        self,
        lanes: Sequence[LaneState],
        buckets: Mapping[int, BucketState],
        now_ms: int,
    ) -> None:
        self.costs = {
            lane.id: [cost for cost in _costs(lane, buckets, now_ms) if cost[1]]
            for lane in lanes
        }
        self._shares = [(lane.id, lane.share) for lane in lanes if lane.share]
        self._vtimes: dict[str, float] = {}
        self._most = {lane.id: lane.jobs for lane in lanes}

    def give(self, budget: int, room: _Room) -> Counter[int]:
        """Give jobs to lanes, and take their permits out of *room*."""
        if self._shares:
            lanes = [(lane, share, self._most[lane]) for lane, share in self._shares]
            given = deal(lanes, self.costs, budget, room, self._vtimes)
        else:
            given = _share(self.costs, budget, room, self._most)
        for lane, count in given.items():
            self._most[lane] -= count
        return given


def cost_in(limit: Limit, cost: int) -> int:
    """Return what a job is charged in a bucket, whose limits may have shrunk since.

    A cost that could never be had any more counts as all that the bucket can have.
    """
    most = [limit.concurrency or cost, limit.pace.burst if limit.pace else cost]
    return min(cost, *most)


def room_in(bucket: BucketState, now_ms: int) -> int:
    """Return how many permits of a bucket are free now."""
    limit = bucket.limit
    if max(limit.closed_until_ms or 0, bucket.block_until_ms) > now_ms:
        return 0
    breaker = bucket.breaker.at(now_ms)
    if limit.breaker is not None and (breaker.is_open or breaker.is_probed):
        return 0
    room = _UNLIMITED
    if limit.budget is not None:
        room = budget.free(limit.budget, bucket.window, now_ms)
    if limit.concurrency is not None:
        room = max(0, limit.concurrency - bucket.in_use)
    if limit.pace is not None:
        room = min(room, available(limit.pace, bucket.tat_us, now_ms * 1000))
    return room


def _share(
    costs: Mapping[int, Sequence[tuple[int, int]]],
    budget: int,
    room: _Room,
    most: Mapping[int, int],
) -> Counter[int]:
    """Give jobs to lanes, and take their permits out of *room*.

    In turns, about as if each gave one job to each lane that has room for it.

    Args:
        costs: bucket and permits of a job, by lane, in order.
        budget: most jobs.
        room: permits by bucket; is changed.
        most: jobs of each lane.
    """
    given: Counter[int] = Counter()
    lanes = list(costs)
    while lanes and budget > 0:
        turn = max(1, budget // len(lanes))
        sharers = Counter(at for lane in lanes for at, _ in costs[lane])
        shares = {at: room[at] // count for at, count in sharers.items()}
        left = []
        for lane in lanes:
            fair = min((shares[at] // cost for at, cost in costs[lane]), default=turn)
            fits = min((room[at] // cost for at, cost in costs[lane]), default=turn)
            count = min(max(1, min(fair, turn)), fits, budget, most[lane] - given[lane])
            if count > 0:
                for at, cost in costs[lane]:
                    room[at] -= count * cost
                given[lane] += count
                budget -= count
                left.append(lane)
        lanes = left
    return given


def _is_probing(bucket: BucketState, now_ms: int) -> bool:
    """Say whether one job may begin in all, whatever it costs."""
    return bucket.limit.breaker is not None and bucket.breaker.at(now_ms).wants_probe


def _jobs_or_permits(bucket: BucketState, now_ms: int) -> int:
    """Return what is free in a bucket: permits, or one job if that is to be a probe."""
    room = room_in(bucket, now_ms)
    return min(1, room) if _is_probing(bucket, now_ms) else room


def _costs(
    lane: LaneState, buckets: Mapping[int, BucketState], now_ms: int
) -> tuple[tuple[int, int], ...]:
    """Return what a job takes of each bucket, as `_jobs_or_permits` counts."""
    found = []
    for use in lane.uses:
        bucket = buckets[use.bucket]
        cost = cost_in(bucket.limit, use.cost)
        if _is_probing(bucket, now_ms):
            cost = 1 if cost <= room_in(bucket, now_ms) else 2
        found.append((use.bucket, cost))
    return tuple(found)


def _blocked(
    lane: LaneState,
    buckets: Mapping[int, BucketState],
    room: Mapping[int, int],
    now_ms: int,
) -> Allotment | None:
    """Return what blocks a lane for longest, or None if a job of it could begin.

    A pause without an end outlasts a time. A time is named before a full cap, to which
    permits come back again and again: each time, the lane would be looked at in vain.
    """
    until_ms, fullest, shortage = 0, None, 0
    costs = _costs(lane, buckets, now_ms)
    for use, (at, price) in zip(lane.uses, costs, strict=True):
        if room[at] >= price:
            continue
        bucket = buckets[use.bucket]
        cost = cost_in(bucket.limit, use.cost)
        opens_ms = _opens_at_ms(bucket, cost, now_ms)
        if opens_ms >= FOREVER_MS:
            return Allotment(lane.id, 0, None, None, at)
        until_ms = max(until_ms, opens_ms)
        short = bucket.in_use + cost - (bucket.limit.concurrency or 0)
        if bucket.limit.breaker is not None and bucket.breaker.at(now_ms).is_probed:
            short = max(1, short)  # Its probe is what it waits for.
        if opens_ms <= now_ms and short > shortage:
            fullest, shortage = at, short
    if until_ms > now_ms:
        return Allotment(lane.id, 0, None, until_ms, None)
    return Allotment(lane.id, 0, None, None, fullest) if fullest is not None else None


def _opens_at_ms(bucket: BucketState, cost: int, now_ms: int) -> int:
    """Return from when its times allow a job; its cap may not."""
    limit = bucket.limit
    opens_ms = max(limit.closed_until_ms or 0, bucket.block_until_ms)
    if limit.pace is not None:
        at_us = next_at_us(limit.pace, bucket.tat_us, now_ms * 1000, cost)
        opens_ms = max(opens_ms, math.ceil(at_us / 1000))
    if limit.breaker is not None:
        opens_ms = max(opens_ms, bucket.breaker.at(now_ms).until_ms)
    if limit.budget is not None and room_in(bucket, now_ms) < cost:
        opens_ms = max(opens_ms, budget.opens_at_ms(now_ms))
    return opens_ms


def _open(lane: LaneState, most: int, buckets: Mapping[int, BucketState]) -> Allotment:
    paces = (buckets[use.bucket].limit.pace for use in lane.uses)
    within_s = min((pace.begin_within_s for pace in paces if pace), default=None)
    return Allotment(lane.id, most, within_s, None, None)
