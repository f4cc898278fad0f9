"""Shares: whose turn it is in a fair pool, and by what an aged pool is ordered."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.quotas.allot import BucketState, LaneState, allot
from jobpool.core.rules.quotas.rules import Limit, Use
from jobpool.core.rules.quotas.shares import (
    Share,
    aged_ms,
    effective,
    last_turn,
    parse_aging,
    show_aging,
)
from jobpool.errors import ConfigError

STARTS = 20
WEIGHTS = st.sampled_from([0.01, 0.5, 1.0, 2.0, 3.0, 1000.0])


def lane(number, share, *, uses=(), rank=0):
    return LaneState(number, "io", "k", rank, float(number), uses, share)


def begun(lanes, want, ahead=0, buckets=()):
    found = allot(lanes, {one.id: one for one in buckets}, want, ahead, 0)
    return Counter({one.lane: one.most for one in found if one.most})


class Pool:
    """Claims, one after the other, by shares that keep their virtual times."""

    def __init__(self, weights):
        self.weights = weights
        self.vtimes = dict.fromkeys(weights, 0.0)
        self.clock = 0.0
        self.starts = []

    def claim(self, waiting, want, ahead=0):
        shares = {
            who: Share(who, effective(self.vtimes[who], self.clock), self.weights[who])
            for who in waiting
        }
        lanes = [lane(number, shares[who]) for number, who in enumerate(waiting, 1)]
        names = dict(enumerate(waiting, 1))
        served = Counter()
        for number, count in begun(lanes, want, ahead).items():
            served[names[number]] += count
        for who, count in served.items():
            self.vtimes[who] = shares[who].vtime + count / self.weights[who]
        turns = [last_turn(shares[who], count) for who, count in served.items()]
        self.clock = max(self.clock, *turns, 0.0)
        self.starts += [who for who in waiting for _ in range(served[who])]
        return served


@given(
    st.lists(
        st.tuples(st.integers(1, 16), st.integers(0, 15)), min_size=60, max_size=99
    ),
    st.integers(2, 5),
)
def test_nobody_of_equal_weight_gets_over_twice_anothers_starts(claims, tenants):
    """Counted over any 20 starts or more, while both wait, whatever is wanted."""
    names = [f"t{n}" for n in range(tenants)]
    pool = Pool(dict.fromkeys(names, 1.0))
    totals = [Counter()]
    for want, ahead in claims:
        served = pool.claim(names, want, min(ahead, want))
        assert served.total() == want
        totals.append(totals[-1] + served)
    for begin in range(0, len(totals), 7):
        for end in range(begin, len(totals)):
            window = totals[end] - totals[begin]
            if window.total() >= STARTS * tenants:
                counts = [window[name] for name in names]
                assert max(counts) <= 2 * min(counts)


@given(st.lists(WEIGHTS, min_size=2, max_size=6), st.integers(1, 9))
def test_starts_are_in_proportion_to_weights(weights, want):
    """No share is ever over one start away from what its weight says."""
    pool = Pool({f"t{n}": weight for n, weight in enumerate(weights)})
    for _ in range(100):
        pool.claim(list(pool.weights), want)
        normal = [pool.vtimes[who] for who in pool.weights]
        steps = [1 / weight for weight in weights]
        assert max(normal) - min(normal) <= max(steps) + 1e-6


@given(st.lists(st.booleans(), min_size=30, max_size=120), st.integers(1, 64))
def test_who_was_idle_is_owed_nothing(pattern, want):
    """However long somebody had nothing waiting, then both get alike, at once.

    Also after claims of many jobs, which one of them got alone.
    """
    pool = Pool({"a": 1.0, "b": 1.0})
    for has_b in pattern:
        pool.claim(["a", "b"] if has_b else ["a"], want)
    before = len(pool.starts)
    for _ in range(40):
        pool.claim(["a", "b"], 1)
    since = Counter(pool.starts[before:])
    assert abs(since["a"] - since["b"]) <= 2


def test_the_turn_of_whoever_has_no_room_is_used_by_others():
    """An idle or blocked share's part goes to the others in the same claim."""
    full = BucketState(7, Limit(concurrency=1), 1, 0, 0)
    blocked = lane(1, Share("a", 0.0), uses=(Use(7, "q", "", 1),))
    assert begun([blocked, lane(2, Share("b", 5.0))], 4, buckets=[full]) == {2: 4}


def test_a_bucket_that_all_share_goes_by_turns():
    """What is scarce for all is dealt out by shares, not in the order of lanes."""
    scarce = BucketState(7, Limit(concurrency=4), 0, 0, 0)
    use = (Use(7, "q", "", 1),)
    lanes = [
        lane(1, Share("flood", 0.0), uses=use),
        lane(2, Share("flood", 0.0), uses=use),
        lane(3, Share("small", 0.5), uses=use),
    ]
    assert begun(lanes, 9, buckets=[scarce]) == {1: 1, 2: 1, 3: 2}


def test_higher_priorities_go_before_any_share():
    """Shares are within a priority: each is dealt as many as are wanted."""
    high, low = lane(1, Share("a", 99.0), rank=1), lane(2, Share("b", 0.0))
    assert begun([high, low], 3) == {1: 3, 2: 3}


def test_as_many_are_given_of_a_counted_lane_as_it_has():
    """In an aged pool it is known how many of a lane's jobs are the next."""
    counted = [
        lane(1, None, rank=2)._replace(jobs=2),
        lane(2, None, rank=1)._replace(jobs=5),
    ]
    assert begun(counted, 7) == {1: 2, 2: 5}


JOBS = st.lists(
    st.tuples(st.integers(-5, 5), st.integers(0, 10_000)), min_size=2, max_size=60
)


@given(JOBS, st.integers(1, 2000))
def test_nothing_new_goes_before_what_has_waited_for_its_bound(jobs, aging):
    """A job of priority p waits for nothing due (their difference * aging) later."""
    ordered = sorted(jobs, key=lambda job: aged_ms(*job, aging))
    highest = max(priority for priority, _ in jobs)
    for place, (priority, run_at) in enumerate(ordered):
        for other, other_at in ordered[:place]:
            assert other_at <= run_at + (other - priority) * aging
            assert other_at <= run_at + (highest - priority) * aging
    for (one, at), (other, other_at) in pairwise(ordered):
        assert one != other or at <= other_at  # within a priority: first due


@pytest.mark.parametrize(
    ("text", "aging_s"), [("1/m", 60), ("10/h", 360), ("2/s", 0.5), ("1/30s", 30)]
)
def test_an_aging_is_priorities_and_a_time(text, aging_s):
    """It is shown as it is read."""
    assert parse_aging(text) == pytest.approx(aging_s)
    assert parse_aging(show_aging(aging_s)) == pytest.approx(aging_s, rel=1e-2)


@pytest.mark.parametrize(
    "text", ["1", "m", "0/m", "-1/m", "1/x", "2000/s", "1/400d", 3]
)
def test_what_is_no_aging_is_refused(text):
    """With what would be one, or the range."""
    with pytest.raises(
        ConfigError, match=r"pools\.io aging: .*(is not a rate|366 days|out of range)"
    ):
        parse_aging(text, "pools.io aging")
