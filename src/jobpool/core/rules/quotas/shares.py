"""Shares and aging: what a pool says of whose jobs begin first, and whose turn it is.

In a *fair* pool, those who wait (tenants, or kinds) have *shares* of the starts of each
priority, by weight: deficit round robin. Each has a virtual time, to which a start adds
``1 / weight``, and the least one is next. The *clock* of a priority is the time that
claims have come to, that of the last start (`last_turn`): a share counts as no less, so
what was idle, blocked or unknown is owed nothing.

In an *aged* pool a job rises by one priority whenever it has waited for ``aging_s``.
All rise alike, so the order never changes: it is that of `aged_ms`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from typing import NamedTuple

import msgspec

from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.quotas.rate import Rate, parse_rate
from jobpool.errors import ConfigError

BY_TENANT, BY_KIND = "tenant", "kind"
AGING_MIN_S, AGING_MAX_S = 0.001, 366 * 86400.0


class PoolRule(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs of a pool go before each other, besides by priority and time."""

    name: str
    fair: str = ""
    """Who has shares: `BY_TENANT`, `BY_KIND`; empty: nobody."""
    aging_s: float | None = None
    """Time in which what waits rises by one priority; None: it does not."""

    @property
    def aging_ms(self) -> float:
        """The same in milliseconds; 0: nothing rises."""
        return (self.aging_s or 0.0) * 1000

    @property
    def is_plain(self) -> bool:
        """Whether the order is that of any pool."""
        return not self.fair and self.aging_s is None


class KindRule(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all jobs of a kind together."""

    kind: str
    weight: float = 1.0
    """Its share, in pools that are fair by kind."""
    retry_budget: RetryBudget | None = None


class Share(NamedTuple):
    """Whose turn a lane's jobs take, as a claim has read it."""

    who: str
    vtime: float
    """No less than the clock."""
    weight: float = 1.0


def effective(vtime: float, clock: float) -> float:
    """Return what a stored virtual time counts as."""
    return max(vtime, clock)


def last_turn(share: Share, starts: int) -> float:
    """Return the virtual time of the last of some starts of a share.

    The largest one of a claim is the clock from then on. By the first ones, whoever
    comes after a claim of 64 jobs of one tenant would go before it 64 times.
    """
    return share.vtime + (starts - 1) / share.weight


def aged_ms(priority: int, run_at_ms: int, aging_ms: float) -> float:
    """Return by what the jobs of an aged pool are ordered, the least first.

    So a job waits for nothing that is due later than the difference of their priorities
    times the aging after it.
    """
    return run_at_ms - priority * aging_ms


def deal(
    lanes: Sequence[tuple[int, Share, int]],
    costs: Mapping[int, Sequence[tuple[int, int]]],
    budget: int,
    room: MutableMapping[int, int],
    vtimes: MutableMapping[str, float],
) -> Counter[int]:
    """Give jobs to lanes by deficit: repeatedly to the share of the least virtual time.

    Args:
        lanes: with whose they are, and their jobs; those of the same share get in
            turns.
        costs: bucket and permits of a job, by lane.
        budget: most jobs.
        room: permits by bucket; is changed.
        vtimes: by share, as they were left by another call; is changed.

    Returns:
        Jobs by lane. Less than the budget only if no lane has room for more.
    """
    given: Counter[int] = Counter()
    of_share: dict[str, list[int]] = {}
    shares: dict[str, Share] = {}
    most: dict[int, int] = {}
    for lane, share, jobs in lanes:
        most[lane] = jobs
        of_share.setdefault(share.who, []).append(lane)
        shares[share.who] = share
        vtimes.setdefault(share.who, share.vtime)
    turns = [(vtimes[who], who) for who in of_share]
    heapq.heapify(turns)
    while turns and budget > 0:
        vtime, who = heapq.heappop(turns)
        waiting = of_share[who]
        while waiting:
            lane = waiting.pop(0)
            has_room = all(room[at] >= cost for at, cost in costs[lane])
            if has_room and given[lane] < most[lane]:
                for at, cost in costs[lane]:
                    room[at] -= cost
                given[lane] += 1
                budget -= 1
                waiting.append(lane)
                vtimes[who] = vtime + 1 / shares[who].weight
                heapq.heappush(turns, (vtimes[who], who))
                break
    return given


def parse_aging(value: object, what: str = "aging") -> float:
    """Read how many priorities what waits rises in which time: ``1/m``, ``10/h``.

    Returns:
        The time in which it rises by one priority, in seconds.

    Raises:
        ConfigError: it is not such a rate, or out of range.
    """
    rate = parse_rate(value, what)
    if not AGING_MIN_S <= rate.per_s / rate.permits <= AGING_MAX_S:
        raise ConfigError(
            f"{what}: {value} is out of range; expected from one priority in 366 days "
            "to a thousand in a second"
        )
    return rate.per_s / rate.permits


def show_aging(aging_s: float) -> str:
    """Format an aging as `parse_aging` reads it."""
    return str(Rate(1.0, aging_s))
