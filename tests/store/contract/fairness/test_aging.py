"""Aged pools: what waits rises, and after its bound nothing new goes before it."""

from collections import Counter

import pytest

from jobpool.core.rules.quotas.definition import Quota
from support.store.fairness import begin, enqueue_for, publish_pool, run_some
from support.store.quotas import KIND, OTHER, ids
from support.store.storing import succeeded

MINUTE_S = 60.0


@pytest.mark.parametrize("want", [1, 10])
def test_a_job_rises_by_one_priority_each_time(store, clock, want):
    """The order is that of when a job is due, less its priority in that time."""
    publish_pool(store, fair="", aging_s=MINUTE_S)
    came = [(0, 0), (3, 0), (0, 30), (2, 65), (1, 65), (5, 290), (5, 301), (0, 301)]
    made = []
    for at, (priority, due_s) in enumerate(came):
        clock.advance(due_s - (came[at - 1][1] if at else 0))
        kind = (KIND, OTHER)[at % 2]
        made += enqueue_for(store, "acme", kind=kind, priority=priority)
    ages = {
        job: due_s - p * MINUTE_S for job, (p, due_s) in zip(made, came, strict=True)
    }
    found = []
    while batch := run_some(store, want):
        found += batch
    assert ids(found) == sorted(made, key=lambda job: (ages[job], job))
    assert all(one.laned for one in found)


def test_nothing_new_goes_before_a_job_that_has_waited_for_its_bound(store, clock):
    """Under a flood of the highest priority: (9 - 1) minutes, then what was there."""
    publish_pool(store, fair="", aging_s=MINUTE_S)
    enqueue_for(store, "flood", 20, priority=9)
    (low,) = enqueue_for(store, "low", priority=1)
    minutes, begun = 0, []
    while low not in begun:
        clock.advance(MINUTE_S)
        minutes += 1
        enqueue_for(store, "flood", 6, priority=9)
        begun = ids(run_some(store, 4))
    before = 20 + 6 * 8
    assert minutes in {before // 4, before // 4 + 1}


def test_one_claim_takes_what_has_risen_highest(store, clock):
    """Also where a lane has more of the oldest jobs than its part of the claim."""
    publish_pool(store, fair="", aging_s=MINUTE_S)
    old = enqueue_for(store, "acme", 12)
    clock.advance(200)
    enqueue_for(store, "beta", 12)
    enqueue_for(store, "acme", 12, OTHER, priority=3)
    assert set(ids(run_some(store, 9))) == set(old[:9])


@pytest.mark.parametrize("fair", ["", "tenant"])
def test_what_is_blocked_lends_its_age_to_nobody(store, clock, fair):
    """An old job without a permit neither holds up a pool nor lifts its priority."""
    cap = Quota(name="one", concurrency=1)
    publish_pool(store, cap, fair=fair, aging_s=MINUTE_S, needs={OTHER: ["one"]})
    enqueue_for(store, "acme", 3, OTHER)
    (held,) = begin(store, 1)
    clock.advance(1000)
    (low,) = enqueue_for(store, "beta")
    (high,) = enqueue_for(store, "beta", priority=2)
    assert ids(run_some(store, 1)) == [high]
    assert ids(run_some(store, 5)) == [low]
    store.settle([succeeded(held)])
    assert [one.kind for one in run_some(store, 5)] == [OTHER]


def test_a_fair_pool_can_be_aged(store, clock):
    """Priorities go before each other by their oldest job, and in each go shares.

    Nothing new of another priority goes before what has waited for its bound; of its
    own, at most one round for each job that was there before.
    """
    publish_pool(store, aging_s=MINUTE_S)
    enqueue_for(store, "flood", 40)
    lows = [enqueue_for(store, who)[0] for who in ("a", "b")]
    clock.advance(5 * MINUTE_S - 1)
    highs = enqueue_for(store, "flood", 10, priority=5)
    clock.advance(2)
    late = enqueue_for(store, "flood", 10, priority=5)
    found = [one.id for _ in range(16) for one in run_some(store, 1)]
    assert set(found[:10]) == set(highs)
    assert set(lows) < set(found[10:14])
    assert not set(found) & set(late)


def test_shares_hold_within_the_priorities_of_an_aged_pool(store, clock):
    """Who floods a priority does not make others of it wait for the flood."""
    publish_pool(store, aging_s=MINUTE_S)
    enqueue_for(store, "flood", 50)
    clock.advance(MINUTE_S)
    enqueue_for(store, "small", 20)
    got = Counter(one.tenant for _ in range(6) for one in run_some(store, 5))
    assert abs(got["flood"] - got["small"]) <= 2
