"""What a claim may lease from which lane: case by case, and for arbitrary states."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobpool.core.rules.quotas.allot import (
    BucketState,
    LaneState,
    allot,
    cost_in,
)
from jobpool.core.rules.quotas.gcra import available, pace, settled, taken
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.rules import FOREVER_MS, Limit, Use

NOW_MS = 1_800_000_000_000
NOW_US = NOW_MS * 1000
CAP_8 = Limit(concurrency=8)
TEN_A_SECOND = Limit(pace=pace(Rate(10, 1), 20))


def bucket(at, limit=CAP_8, *, in_use=0, tat_us=0, block_until_ms=0):
    return BucketState(at, limit, in_use, tat_us, block_until_ms)


def lane(at, *buckets, rank=0, vtime=0.0, cost=1):
    uses = tuple(Use(one, f"quota-{one}", "", cost) for one in buckets)
    return LaneState(at, "io", "kind", rank, vtime, uses)


def allotted(lanes, buckets, want=100, ahead=0):
    """Return allotments by lane."""
    states = {one.id: one for one in buckets}
    return {one.lane: one for one in allot(lanes, states, want, ahead, NOW_MS)}


def counts(lanes, buckets, want=100, ahead=0):
    found = allotted(lanes, buckets, want, ahead)
    return {at: one.most for at, one in found.items() if one.most}


def test_a_lane_gets_what_its_cap_has_left():
    assert counts([lane(1, 1)], [bucket(1, in_use=3)]) == {1: 5}


def test_a_lane_without_buckets_gets_what_is_wanted():
    """A job without a tenant, where only tenants are limited."""
    assert counts([lane(1)], [], want=7) == {1: 7}


def test_all_needs_are_decided_together_and_nothing_is_granted_partly():
    """The full one blocks; the other one's permits go to the lane that can use them."""
    full, free = bucket(1, in_use=8), bucket(2)
    found = allotted([lane(1, 1, 2), lane(2, 2)], [full, free])
    assert found[1].most == 0
    assert found[1].blocked_by == 1
    assert found[2].most == 8


def test_a_cost_that_does_not_fit_takes_nothing():
    found = allotted([lane(1, 1, cost=3)], [bucket(1, in_use=6)])
    assert (found[1].most, found[1].blocked_by) == (0, 1)


def test_lanes_of_a_rank_share_a_bucket_and_the_first_ones_get_the_odd_ones():
    lanes = [lane(at, 1, vtime=-at) for at in (1, 2, 3)]
    assert counts(lanes, [bucket(1)]) == {3: 3, 2: 3, 1: 2}


def test_what_one_lane_cannot_use_the_others_get():
    """The second lane has a full bucket of its own after two."""
    lanes = [lane(1, 1), lane(2, 1, 2)]
    found = counts(lanes, [bucket(1), bucket(2, in_use=6)])
    assert found == {1: 6, 2: 2}


def test_a_higher_rank_goes_first_and_a_lower_one_gets_what_it_leaves():
    """Of the buckets; jobs are cut to what is wanted when they are found."""
    lanes = [lane(1, 1, rank=0), lane(2, 1, rank=5), lane(3, 2, rank=-5)]
    assert counts(lanes, [bucket(1), bucket(2)], want=6) == {2: 6, 1: 2, 3: 6}


def test_a_lane_that_only_others_leave_nothing_for_is_not_blocked():
    """They may have no jobs: then the next look finds their permits free."""
    found = allotted([lane(1, 1, rank=1), lane(2, 1)], [bucket(1)])
    assert found[2][1:] == (0, None, None, None)


def test_a_full_bucket_blocks_until_it_frees_something():
    found = allotted([lane(1, 1)], [bucket(1, in_use=8)])
    assert found[1][1:] == (0, None, None, 1)


def test_of_full_buckets_the_one_that_is_most_over_blocks():
    """Its cap was lowered: it frees something last."""
    found = allotted([lane(1, 1, 2)], [bucket(1, in_use=8), bucket(2, in_use=12)])
    assert found[1].blocked_by == 2


def test_a_rate_blocks_until_it_has_a_permit():
    rate = TEN_A_SECOND.pace
    used = bucket(1, TEN_A_SECOND, tat_us=taken(rate, 0, NOW_US, 20))
    found = allotted([lane(1, 1)], [used])
    assert found[1].opens_at_ms == NOW_MS + 600
    assert found[1].most == 0


def test_the_longest_time_is_named_and_a_time_before_a_full_cap():
    """To a cap permits come back again and again; each time would be in vain."""
    paused = Limit(closed_until_ms=NOW_MS + 5000)
    buckets = [
        bucket(1, in_use=8),
        bucket(2, paused),
        bucket(3, block_until_ms=NOW_MS + 9000),
    ]
    found = allotted([lane(1, 1, 2, 3)], buckets)
    assert (found[1].opens_at_ms, found[1].blocked_by) == (NOW_MS + 9000, None)


def test_a_pause_without_an_end_outlasts_everything():
    """Only a change of the rules opens the lane."""
    paused = Limit(closed_until_ms=FOREVER_MS)
    buckets = [bucket(1, block_until_ms=NOW_MS + 9000), bucket(2, paused)]
    found = allotted([lane(1, 1, 2)], buckets)
    assert (found[1].opens_at_ms, found[1].blocked_by) == (None, 2)


def test_a_time_that_has_passed_blocks_nothing():
    buckets = [bucket(1, Limit(closed_until_ms=NOW_MS), block_until_ms=NOW_MS)]
    assert counts([lane(1, 1)], buckets, want=3) == {1: 3}


def test_jobs_with_a_rate_say_within_what_time_they_must_begin():
    slow = Limit(pace=pace(Rate(1, 1), 1))
    buckets = [bucket(1), bucket(2, TEN_A_SECOND), bucket(3, slow)]
    lanes = [lane(1, 1), lane(2, 1, 2), lane(3, 1, 2, 3)]
    within = {at: one.begin_within_s for at, one in allotted(lanes, buckets).items()}
    assert within == {1: None, 2: 0.25, 3: slow.pace.begin_within_s}


@pytest.mark.parametrize(
    ("want", "ahead", "in_use", "expected"),
    [
        (10, 10, 0, 4),
        (10, 9, 0, 5),
        (10, 6, 0, 8),
        (3, 3, 0, 3),
        (10, 10, 7, 0),
        (10, 9, 7, 1),
    ],
)
def test_at_most_half_of_what_is_free_is_leased_ahead(want, ahead, in_use, expected):
    """Of 8; what slots are free for may take all."""
    found = allotted([lane(1, 1)], [bucket(1, in_use=in_use)], want, ahead)
    assert found[1][1:] == (expected, None, None, None)


def test_half_of_what_is_free_is_half_for_all_ranks_together():
    lanes = [lane(1, 1, rank=1), lane(2, 1)]
    assert counts(lanes, [bucket(1)], want=4, ahead=2) == {1: 4, 2: 2}


def test_nothing_is_given_where_nothing_is_wanted():
    found = allotted([lane(1, 1), lane(2, 2)], [bucket(1), bucket(2, in_use=8)], 0)
    assert found[1][1:] == (0, None, None, None)
    assert found[2].blocked_by == 2


def test_a_cost_over_what_was_set_since_takes_the_whole_bucket():
    """A job that could never begin would wait for ever, without a word."""
    small = bucket(1, Limit(concurrency=3, pace=pace(Rate(10, 1), 2)))
    assert cost_in(small.limit, 5) == 2
    assert counts([lane(1, 1, cost=5)], [small], want=9) == {1: 1}


LIMITS = st.builds(
    lambda cap, rate, burst, closed: Limit(
        concurrency=cap,
        pace=pace(Rate(rate, 1), burst) if rate else None,
        closed_until_ms=closed,
    ),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 100),
    st.integers(1, 30),
    st.sampled_from([None] * 8 + [NOW_MS, NOW_MS + 1000, FOREVER_MS]),
)


def settled_at(limit, tat_in_us):
    """Return an arrival time as a claim has it."""
    tat_us = NOW_US + tat_in_us
    return settled(limit.pace, tat_us, NOW_US) if limit.pace else tat_us


@st.composite
def states(draw):
    """Return buckets and lanes that use some of them."""
    count = draw(st.integers(1, 5))
    buckets = [
        bucket(
            at,
            limit := draw(LIMITS),
            in_use=draw(st.integers(0, 24)),
            tat_us=settled_at(limit, draw(st.integers(-2_000_000, 2_000_000))),
            block_until_ms=draw(st.sampled_from([0] * 8 + [NOW_MS, NOW_MS + 700])),
        )
        for at in range(1, count + 1)
    ]
    used = st.lists(st.integers(1, count), unique=True, max_size=3)
    lanes = [
        lane(
            at,
            *draw(used),
            rank=draw(st.integers(0, 2)),
            vtime=draw(st.integers(0, 9)),
            cost=draw(st.sampled_from([1, 1, 1, 2, 5])),
        )
        for at in range(1, draw(st.integers(1, 8)) + 1)
    ]
    return lanes, buckets


def free_in(one):
    """Return a bucket's free permits, as its parts say it."""
    if max(one.limit.closed_until_ms or 0, one.block_until_ms) > NOW_MS:
        return 0
    free = [10**9]
    if one.limit.concurrency is not None:
        free.append(one.limit.concurrency - one.in_use)
    if one.limit.pace is not None:
        free.append(available(one.limit.pace, one.tat_us, NOW_US))
    return max(0, min(free))


def fits(one, buckets):
    """Return whether a job of a lane could begin if it were the only one."""
    return all(
        free_in(buckets[use.bucket]) >= cost_in(buckets[use.bucket].limit, use.cost)
        for use in one.uses
    )


WANTED = st.integers(0, 40)


@settings(max_examples=500)
@given(states(), WANTED, WANTED)
def test_no_bucket_is_passed_and_no_permit_is_left_that_a_lane_could_use(
    state, want, ahead
):
    """For any state; what is leased ahead gets at most half of what was free."""
    lanes, listed = state
    ahead = min(ahead, want)
    found = allotted(lanes, listed, want, ahead)
    buckets = {one.id: one for one in listed}
    used, by_rank = Counter(), Counter()
    for one in lanes:
        by_rank[one.rank] += found[one.id].most
        for use in one.uses:
            cost = cost_in(buckets[use.bucket].limit, use.cost)
            used[use.bucket] += found[one.id].most * cost
    assert all(used[at] <= free_in(one) for at, one in buckets.items())
    assert all(count <= want for count in by_rank.values())
    total = by_rank.total()
    if any(fits(one, buckets) for one in lanes) and want > ahead:
        assert total > 0
    if not ahead:
        for one in lanes:  # each lane has all, or lacks a permit, or its rank is full
            left = {
                at: bucket._replace(
                    in_use=bucket.in_use + used[at],
                    tat_us=taken(bucket.limit.pace, bucket.tat_us, NOW_US, used[at])
                    if bucket.limit.pace and used[at]
                    else bucket.tat_us,
                )
                for at, bucket in buckets.items()
            }
            assert by_rank[one.rank] == want or not fits(one, left)


@settings(max_examples=500)
@given(states(), WANTED)
def test_a_lane_is_blocked_if_and_only_if_none_of_its_jobs_could_begin(state, want):
    """And until a time at which its times allow one, or by a bucket that is full."""
    lanes, listed = state
    buckets = {one.id: one for one in listed}
    for one, (_, most, _, opens_ms, blocked_by) in zip(
        sorted(lanes, key=lambda one: (-one.rank, one.vtime, one.id)),
        allot(lanes, buckets, want, 0, NOW_MS),
        strict=True,
    ):
        is_blocked = opens_ms is not None or blocked_by is not None
        assert is_blocked != fits(one, buckets)
        if is_blocked:
            assert most == 0
            assert (opens_ms is None) != (blocked_by is None)
        if blocked_by is not None:
            assert free_in(buckets[blocked_by]) < max(use.cost for use in one.uses)
        if opens_ms is not None:
            assert NOW_MS < opens_ms < FOREVER_MS
            for use in one.uses:
                at = buckets[use.bucket]
                cost = cost_in(at.limit, use.cost)
                rate = at.limit.pace
                assert max(at.limit.closed_until_ms or 0, at.block_until_ms) <= opens_ms
                assert not rate or available(rate, at.tat_us, opens_ms * 1000) >= cost


@given(states(), st.integers(1, 40))
def test_ahead_gets_at_most_half(state, want):
    """Whatever the lanes: with no slot free, half of each bucket stays."""
    lanes, listed = state
    found = allotted(lanes, listed, want, want)
    used = Counter()
    buckets = {one.id: one for one in listed}
    for one in lanes:
        for use in one.uses:
            cost = cost_in(buckets[use.bucket].limit, use.cost)
            used[use.bucket] += found[one.id].most * cost
    assert all(2 * used[at] <= free_in(one) for at, one in buckets.items())
