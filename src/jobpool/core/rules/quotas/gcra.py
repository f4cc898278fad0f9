"""Rates: how many permits a bucket has now, so that no window of *begins* has too many.

A claim grants a permit, and the job begins a little later. So that never more than
``rate * t + burst`` begin within any time t, a permit must be used within D of the
claim or go back, and the claims keep a little below: to ``rate * t + capacity``, where
``capacity = burst - rate * D``. If the burst is too small for that, the capacity is
one, and permits are further apart instead: ``(1 / rate + D) / burst``.

A supervisor whose answers come later than that says so. What it is granted may begin so
much later, and its buckets pay for that with as much time, so that also on a slow store
jobs begin, if at a lower rate.

The state is one number, the *theoretical arrival time* (``tat_us``): when the bucket
will have, or had, all permits back. Taking one adds an interval to it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from jobpool.core.rules.quotas.rate import Rate

DELAY_MAX_S = 0.5
DELAY_MIN_S = 0.05
"""A claim and the way to the child take time, however fast a rate is. A burst of
``1 + rate * 0.05 s`` or more keeps the full rate."""
SLOW_MAX_S = 0.5
"""So much later than otherwise a begin may be, where answers are slow."""
_SLOW_SHARE = 0.02
"""A slow rate with a burst of one may be slower by this share: nobody sees it."""
_SECOND_US = 1_000_000


class Pace(NamedTuple):
    """A rate, ready for arithmetic."""

    interval_us: float
    """Microseconds for a permit to come back."""
    capacity: float
    """Permits that can be granted at once while the bucket has been full for no time;
    after `DELAY_MAX_S` of rest it is the burst."""
    burst: int
    begin_within_s: float
    """A job must begin, as its supervisor sees it, within this time of its request for
    leases. It is half of D: the other half is for the way to the child."""


@lru_cache(maxsize=4096)
def pace(rate: Rate, burst: int | None = None) -> Pace:
    """Return the arithmetic of a rate.

    Args:
        rate: as declared.
        burst: at least 1; None: the rate's default.
    """
    burst = rate.default_burst if burst is None else burst
    interval_s = rate.per_s / rate.permits
    delay_s = max(
        min(DELAY_MAX_S, (burst - 1) * interval_s / 2),
        min(DELAY_MAX_S, _SLOW_SHARE * interval_s if burst == 1 else 0.0),
        DELAY_MIN_S,
    )
    capacity = burst - delay_s / interval_s
    if capacity < 1:
        capacity = 1.0
        interval_s = max(interval_s, (interval_s + delay_s) / burst)
    return Pace(interval_s * _SECOND_US, capacity, burst, delay_s / 2)


def available(pace: Pace, tat_us: int, now_us: int) -> int:
    """Return how many permits may be granted now.

    It is safe to grant them all: a bucket that has rested has its burst, since the rest
    makes up for what a late begin could add.
    """
    rested = (now_us - settled(pace, tat_us, now_us)) / pace.interval_us
    return max(0, min(pace.burst, math.floor(rested + pace.capacity + _GRAIN)))


_GRAIN = 1e-9
"""So that an interval that is exactly over counts as over."""


def taken(pace: Pace, tat_us: int, now_us: int, cost: int, slow_us: int = 0) -> int:
    """Return the new arrival time after permits were granted.

    Args:
        pace: the rate.
        tat_us: the arrival time before.
        now_us: the time of the claim, in microseconds since the epoch.
        cost: permits; at most as many as `available` said.
        slow_us: they may be used so much later than `Pace.begin_within_s` says; at most
            `SLOW_MAX_S`.
    """
    before = max(settled(pace, tat_us, now_us), now_us)
    return before + math.ceil(cost * pace.interval_us) + slow_us


def returned(pace: Pace, tat_us: int, now_us: int, cost: int, held_from_us: int) -> int:
    """Return the new arrival time after permits came back unused.

    While they were away, the bucket gained permits; had they been there, it might have
    been full and gained none. So what it gained is not given back. (It would be too
    much to say "if it was full": what had emptied it may have come back as well.)

    Args:
        pace: the rate.
        tat_us: the arrival time now.
        now_us: the time now.
        cost: all permits that come back now together.
        held_from_us: when the first of them was granted.
    """
    away_us = now_us - held_from_us
    if away_us < 0:  # the clock was set back: nobody knows
        return settled(pace, tat_us, now_us)
    back_us = math.floor(cost * pace.interval_us) - away_us
    return settled(pace, tat_us, now_us) - max(0, back_us)


def next_at_us(pace: Pace, tat_us: int, now_us: int, cost: int) -> int:
    """Return when so many permits may be granted; *now_us* if they may be now.

    Args:
        pace: the rate.
        tat_us: the arrival time.
        now_us: the time now.
        cost: permits; more than the burst count as the burst.
    """
    short = min(cost, pace.burst) - pace.capacity
    wait_us = math.ceil(short * pace.interval_us)
    return max(now_us, settled(pace, tat_us, now_us) + wait_us)


def settled(pace: Pace, tat_us: int, now_us: int) -> int:
    """Return the arrival time, no later than that of a bucket without any permit.

    A bucket that has paid for slow answers may be a little later.

    It is later only if the clock was set back, or the rate has become faster. Store it
    then: else the bucket would seem to be empty until its old time has come.
    """
    full_us = math.ceil(pace.burst * pace.interval_us + SLOW_MAX_S * _SECOND_US)
    return min(tat_us, now_us + full_us)
