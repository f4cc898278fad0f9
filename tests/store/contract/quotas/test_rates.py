"""Rates: in no window begin more than its rate times its length, and the burst."""

import msgspec
import pytest

from jobpool.core.jobs.job import Throttle
from jobpool.core.rules.quotas.definition import Need
from jobpool.store.records.jobs import HeldBack
from support.store import quotas
from support.store.quotas import KIND, OTHER, enqueue, ids, publish, quota
from support.store.storing import (
    ended,
    handed_back,
    lease,
    lease_one,
    new_job,
    snoozed,
    succeeded,
)

ENGINES = quotas.ENGINES
_replace = msgspec.structs.replace


def lease_all(store, run_id="run-1"):
    """Lease from one pool, with what else the store says."""
    store.renew(run_id, 60.0, anew=True)
    return store.lease(run_id, {"cpu": 100}, {"cpu": [KIND, OTHER]})


def unbegun(granted):
    return _replace(handed_back(granted), unbegun=True)


def given_back(granted):
    """As a child's death does to jobs that it may have begun."""
    return _replace(handed_back(granted), unbegun=False)


def most_in_a_window(begins, seconds):
    return max(
        sum(at <= other < at + seconds for other in begins) for at in sorted(begins)
    )


@pytest.mark.parametrize(
    ("rate", "burst"), [("10/s", 20), ("10/s", 1), ("2/s", 2), ("60/m", None)]
)
def test_in_no_window_begin_more_than_the_rate_and_the_burst(store, clock, rate, burst):
    """And hardly fewer, if so many wait."""
    stripe = quota(rate=rate, burst=burst)
    publish(store, stripe)
    enqueue(store, 400)
    begins, began_ms = [], clock.utc_ms()
    while clock.utc_ms() < began_ms + 20_000:
        batch = lease_all(store)
        begins += [(clock.utc_ms() - began_ms) / 1000] * len(batch.leases)
        clock.advance(min(0.1, batch.next_due_in_s or 0.001))
    per_s, most = stripe.rate.per_second, stripe.burst_in_force
    for seconds in (0.1, 0.5, 1, 2, 5, 10):
        assert most_in_a_window(begins, seconds) <= per_s * seconds + most
    assert len(begins) >= 0.65 * per_s * 20


def test_a_store_says_what_quotas_hold_back(store, clock):
    """And when a time lets it begin. Not of kinds that are paused, or of others."""
    kinds = {"cpu": [KIND]}
    publish(store, quota(rate="6/m", burst=1))
    assert store.held_back(kinds) is None
    enqueue(store, 2)
    assert len(lease_all(store).leases) == 1
    assert lease_all(store).leases == ()
    assert 9.0 <= store.held_back(kinds).opens_in_s <= 11.0
    assert store.held_back({"cpu": [OTHER]}) is None
    store.pause(kind=KIND)
    assert store.held_back(kinds) is None


def test_a_store_says_that_no_time_frees_a_cap(store):
    publish(store, quota(concurrency=1))
    enqueue(store, 2)
    assert len(lease_all(store).leases) == 1
    assert lease_all(store).leases == ()
    assert store.held_back({"cpu": [KIND]}) == HeldBack(None)


def test_a_store_says_when_the_next_permit_comes(store, clock):
    """So that a supervisor need not ask before."""
    publish(store, quota(rate="6/m", burst=1))
    enqueue(store, 2)
    assert len(lease_all(store).leases) == 1
    batch = lease_all(store)
    assert batch.leases == ()
    assert 9.0 <= batch.next_due_in_s <= 11.0
    clock.advance(batch.next_due_in_s / 2)
    assert lease_all(store).leases == ()
    clock.advance(batch.next_due_in_s / 2 + 0.001)
    assert len(lease_all(store).leases) == 1


def test_the_bucket_that_opens_first_says_when(store, clock):
    """Each has its own time."""
    publish(store, quota(rate="6/m", burst=1, per="args.vendor"))
    enqueue(store, 2, values={"vendor": "a"})
    assert len(lease_all(store).leases) == 1
    clock.advance(4)
    enqueue(store, 2, values={"vendor": "b"})
    assert len(lease_all(store).leases) == 1
    assert 5.0 <= lease_all(store).next_due_in_s <= 7.0


def test_a_job_with_a_rate_is_told_how_soon_it_must_begin(store):
    """Else begins could bunch up; a job without has no such time."""
    publish(store, quota(rate="10/s", burst=20))
    enqueue(store, 1)
    store.enqueue([new_job(OTHER)])
    granted = {one.kind: one.begin_within_s for one in lease(store)}
    assert granted[OTHER] is None
    assert 0 < granted[KIND] <= 0.5


def test_what_is_granted_slowly_has_more_time_and_its_rate_pays(store, clock):
    """Once for each claim, whatever that grants; a cap pays nothing."""
    publish(store, quota(rate="1/s", burst=1), quota("cap", concurrency=9))
    enqueue(store, 3)
    wanted = {"cpu": 9}, {"cpu": [KIND]}
    (granted,) = store.lease("run-1", *wanted, slow_s=0.3).leases
    due_s = store.lease("run-1", *wanted).next_due_in_s
    clock.advance(due_s)
    (prompt,) = store.lease("run-1", *wanted).leases
    assert granted.begin_within_s == pytest.approx(prompt.begin_within_s + 0.3)
    usual_s = store.lease("run-1", *wanted).next_due_in_s
    assert due_s == pytest.approx(usual_s + 0.3, abs=0.002)


def test_what_never_began_returns_what_it_has_used_of_a_rate(store):
    """Else a supervisor that is late would use up the rate in vain."""
    publish(store, quota(rate="1/h", burst=1))
    enqueue(store, 2)
    granted = lease_one(store)
    assert lease(store) == ()
    store.settle([unbegun(granted)])
    assert len(lease(store)) == 1
    assert lease(store) == ()


@pytest.mark.parametrize("end", [succeeded, ended, snoozed, given_back])
def test_what_may_have_begun_returns_nothing_to_a_rate(store, end):
    """However it has ended."""
    publish(store, quota(rate="1/h", burst=1))
    enqueue(store, 2)
    store.settle([end(lease_one(store))])
    assert lease(store) == ()


def test_what_never_began_cannot_fill_a_bucket_above_its_burst(store, clock):
    """It would have been full without it, too."""
    publish(store, quota(rate="1/s", burst=2))
    enqueue(store, 10)
    granted = lease(store)
    assert len(granted) <= 2
    clock.advance(30)
    store.settle([unbegun(one) for one in granted])
    assert len(lease(store)) <= 2


def test_a_cost_uses_so_much_of_a_rate(store, clock):
    """All of it at once."""
    publish(store, quota(rate="1/s", burst=10), needs={KIND: [Need("stripe", 5)]})
    enqueue(store, 10)
    first = len(lease(store))
    assert first in {1, 2}
    clock.advance(20)
    assert len(lease(store)) == 2


def test_cap_and_rate_of_a_quota_both_hold(store, clock):
    """The one that has less decides."""
    publish(store, quota(rate="10/s", burst=10, concurrency=3))
    enqueue(store, 50)
    granted = lease(store)
    assert len(granted) == 3
    clock.advance(60)
    assert lease(store) == ()
    store.settle([succeeded(one) for one in granted])
    assert len(lease(store)) == 3


def test_a_clock_that_was_set_back_does_not_close_a_rate_for_long(store, clock):
    """At most for as long as its burst takes."""
    publish(store, quota(rate="1/s", burst=2))
    enqueue(store, 10)
    lease(store)
    clock.advance(-86400)
    lease(store)
    clock.advance(4)
    assert len(lease(store)) >= 1


def test_a_throttled_bucket_gives_nobody_a_permit_before_its_time(store, clock):
    """The vendor has said so; other buckets have nothing to do with it."""
    publish(store, quota(concurrency=9, per="args.vendor"))
    enqueue(store, 3, values={"vendor": "a"})
    granted = lease_one(store)
    store.settle([_replace(snoozed(granted), throttle=Throttle("stripe", "a", 30_000))])
    (free,) = enqueue(store, 1, values={"vendor": "b"})
    batch = lease_all(store)
    assert ids(batch.leases) == [free]
    assert batch.next_due_in_s == 30.0
    clock.advance(29.999)
    assert lease(store) == ()
    clock.advance(0.001)
    assert len(lease(store)) == 2


def test_a_block_is_lengthened_but_never_shortened(store, clock):
    """Of two answers, the later time counts."""
    publish(store, quota(concurrency=9))
    enqueue(store, 1)
    store.block_buckets([Throttle("stripe", "", 60_000), Throttle("stripe", "", 5_000)])
    clock.advance(59)
    assert lease(store) == ()
    store.block_buckets([Throttle("stripe", "", 5_000)])
    clock.advance(4)
    assert lease(store) == ()
    clock.advance(1)
    assert len(lease(store)) == 1


def test_a_block_lasts_no_longer_than_the_quota_allows(store, clock):
    """A vendor may say nonsense."""
    publish(store, quota(concurrency=9, throttle_max_s=60.0))
    enqueue(store, 1)
    store.block_buckets([Throttle("stripe", "", 86_400_000)])
    clock.advance(60)
    assert len(lease(store)) == 1


def test_a_clock_that_was_set_back_does_not_shorten_a_block(store, clock):
    """The vendor's time is not ours."""
    publish(store, quota(concurrency=9))
    enqueue(store, 1)
    store.block_buckets([Throttle("stripe", "", 60_000)])
    clock.advance(-10)
    assert lease(store) == ()
    clock.advance(69)
    assert lease(store) == ()
    clock.advance(1)
    assert len(lease(store)) == 1


def test_a_stale_settlement_neither_frees_nor_blocks(store):
    """Its token was superseded."""
    publish(store, quota(concurrency=1))
    enqueue(store, 2)
    first = lease_one(store)
    store.settle([handed_back(first)])
    lease_one(store)
    late = _replace(snoozed(first), throttle=Throttle("stripe", "", 60_000))
    store.settle([late])
    assert lease(store) == ()
    (bucket,) = store.buckets("stripe")
    assert (bucket.used, bucket.blocked_until_ms) == (1, None)
