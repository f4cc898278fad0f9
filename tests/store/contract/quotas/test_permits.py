"""Permits of running attempts: asked for one by one, and returned."""

import pytest

from jobpool.core.jobs.job import PermitAnswer, PermitAsk, PermitReturn, Throttle
from support.store import quotas
from support.store.quotas import KIND, OTHER, enqueue, publish, quota
from support.store.storing import (
    begin_run,
    ended,
    handed_back,
    lease,
    lease_one,
    new_job,
    succeeded,
)

ENGINES = quotas.ENGINES
GRANTED = PermitAnswer(granted=True)
STALE = PermitAnswer(granted=False, stale=True)


def running(store, count=1):
    """Lease jobs of a kind without needs."""
    store.enqueue([new_job(OTHER)] * count)
    return lease(store, limit=count)


def ask(granted, n=1, *, value="", cost=1, name="stripe"):
    return PermitAsk(granted.id, granted.token, n, name, value, cost)


def take(store, *asks, run_id="run-1"):
    return store.take_permits(run_id, list(asks))


def test_attempts_get_as_many_permits_as_the_cap_has(store):
    """The next one is told so, and gets the one that comes back."""
    publish(store, quota(concurrency=2), needs={})
    one, two = running(store, 2)
    asks = [ask(one, 1), ask(two, 1), ask(one, 2)]
    assert take(store, *asks) == [GRANTED, GRANTED, PermitAnswer(granted=False)]
    store.return_permits([PermitReturn(two.token, 1)])
    assert take(store, ask(one, 2)) == [GRANTED]


def test_a_cost_is_granted_whole_or_not_at_all(store):
    """One that fits is not kept waiting by one that does not."""
    publish(store, quota(concurrency=3), needs={})
    one, two = running(store, 2)
    assert take(store, ask(one, 1, cost=2), ask(two, 1, cost=2), ask(two, 2)) == [
        GRANTED,
        PermitAnswer(granted=False),
        GRANTED,
    ]


def test_a_cost_that_can_never_be_had_is_refused_for_ever(store):
    """It would wait for nothing."""
    publish(store, quota(concurrency=3), quota("slow", rate="1/s", burst=2), needs={})
    (one,) = running(store)
    assert take(store, ask(one, 1, cost=4), ask(one, 2, cost=3, name="slow")) == [
        STALE,
        STALE,
    ]


def test_asking_again_for_the_same_permit_takes_no_other(store):
    """The answer was lost with its transaction's."""
    publish(store, quota(concurrency=2), needs={})
    one, two = running(store, 2)
    assert take(store, ask(one)) == [GRANTED]
    assert take(store, ask(one)) == [GRANTED]
    assert store.buckets("stripe")[0].used == 1
    assert take(store, ask(two)) == [GRANTED]


def test_returning_a_permit_again_changes_nothing(store):
    """Nor does returning one that was never taken."""
    publish(store, quota(concurrency=1), needs={})
    one, two = running(store, 2)
    store.return_permits([PermitReturn(one.token, 7)])
    take(store, ask(one, 1))
    store.return_permits([PermitReturn(one.token, 1)] * 2)
    take(store, ask(two, 1))
    store.return_permits([PermitReturn(one.token, 1)])
    assert take(store, ask(one, 2)) == [PermitAnswer(granted=False)]


def test_returning_leaves_the_permits_of_the_start(store):
    """They are the lease's, until it ends."""
    publish(store, quota(concurrency=1), needs={KIND: ["stripe"]})
    enqueue(store, 2)
    granted = lease_one(store)
    store.return_permits([PermitReturn(granted.token, 1)])
    assert lease(store) == ()


@pytest.mark.parametrize("end", [succeeded, handed_back, ended])
def test_the_end_of_an_attempt_returns_what_it_has_asked_for(store, end):
    """Whatever its handler has left open."""
    publish(store, quota(concurrency=2), needs={})
    one, two = running(store, 2)
    take(store, ask(one, 1), ask(one, 2))
    store.settle([end(one)])
    assert take(store, ask(two, 1), ask(two, 2)) == [GRANTED, GRANTED]


def test_an_attempt_without_a_lease_gets_nothing(store_factory):
    """Superseded, of another run, or unknown: it will end anyhow."""
    store = store_factory()
    publish(store, quota(concurrency=9), needs={})
    begin_run(store, "run-2", host="b")
    (one,) = running(store)
    assert take(store, ask(one), run_id="run-2") == [STALE]
    assert take(store, ask(one)._replace(token=one.token + 1)) == [STALE]
    assert take(store, ask(one)._replace(job_id=one.id + 99)) == [STALE]
    store.settle([succeeded(one)])
    assert take(store, ask(one)) == [STALE]
    assert sum(row.used for row in store.buckets("stripe")) == 0


def test_starts_and_permits_share_a_cap(store):
    """Neither is granted over the other."""
    publish(store, quota(concurrency=2), needs={KIND: ["stripe"]})
    one, two = running(store, 2)
    take(store, ask(one))
    enqueue(store, 5)
    assert len(lease(store)) == 1
    assert take(store, ask(two)) == [PermitAnswer(granted=False)]


def test_a_permit_of_a_rate_is_used_and_never_returned(store, clock):
    """The answer says when the next one comes."""
    publish(store, quota(rate="1/s", burst=1), needs={})
    one, two = running(store, 2)
    assert take(store, ask(one)) == [GRANTED]
    store.return_permits([PermitReturn(one.token, 1)])
    store.settle([succeeded(one)])
    (answer,) = take(store, ask(two))
    assert not answer.granted
    assert 0.9 <= answer.retry_in_s <= 1.2
    clock.advance(answer.retry_in_s)
    assert take(store, ask(two)) == [GRANTED]


def test_many_permits_a_second_stay_within_the_rate(store, clock):
    """In no window more than its rate and burst, and hardly fewer."""
    publish(store, quota(rate="50/s", burst=10), needs={})
    (one,) = running(store)
    granted, n = [], 0
    for hundredths in range(400):
        while take(store, ask(one, n := n + 1))[0].granted:
            granted.append(hundredths / 100)
        clock.advance(0.01)
    for seconds in (0.01, 0.1, 1.0, 2.0):
        most = max(sum(at <= b < at + seconds for b in granted) for at in set(granted))
        assert most <= 50 * seconds + 10
    assert len(granted) >= 0.95 * 50 * 4


def test_a_blocked_bucket_gives_no_permit_before_its_time(store, clock):
    """And says until when."""
    publish(store, quota(concurrency=9), needs={})
    (one,) = running(store)
    store.block_buckets([Throttle("stripe", "", 20_000)])
    assert take(store, ask(one)) == [PermitAnswer(granted=False, retry_in_s=20.0)]
    clock.advance(20)
    assert take(store, ask(one)) == [GRANTED]


def test_each_value_has_permits_of_its_own(store):
    """As the attempt says it."""
    publish(store, quota(concurrency=1, per="args.vendor"), needs={})
    one, two = running(store, 2)
    assert take(store, ask(one, value="a"), ask(two, value="b")) == [GRANTED, GRANTED]
    assert take(store, ask(two, 2, value="a")) == [PermitAnswer(granted=False)]


def test_a_quota_that_nobody_publishes_holds_nothing_back(store):
    """Its numbers are not known."""
    (one,) = running(store)
    assert take(store, ask(one, 1), ask(one, 2)) == [GRANTED, GRANTED]


def test_a_paused_quota_gives_no_permits(store):
    """To none that asks while it runs, either."""
    publish(store, quota(concurrency=9), needs={})
    (one,) = running(store)
    store.pause(quota="stripe", for_s=30)
    assert take(store, ask(one)) == [PermitAnswer(granted=False, retry_in_s=30.0)]
    store.resume(quota="stripe")
    assert take(store, ask(one)) == [GRANTED]


def test_whoever_frees_permits_that_others_wait_for_is_told_to_wake_them(store):
    """Once; and not for a bucket that nobody waits for."""
    publish(store, quota(concurrency=1))
    enqueue(store, 1)
    store.settle([succeeded(lease_one(store))])
    assert not store.permits_freed()
    enqueue(store, 2)
    granted = lease_one(store)
    lease(store)
    store.settle([succeeded(granted)])
    assert store.permits_freed()
    assert not store.permits_freed()


def test_the_end_of_a_run_returns_what_it_had_completed_under(store_factory, clock):
    """Permits outlast neither the lease nor, if it was completed, the run."""
    store = store_factory()
    publish(store, quota(concurrency=1), run_id="run-1")
    publish(store, quota(concurrency=1), run_id="run-2", host="b")
    enqueue(store, 2)
    store.settle([succeeded(lease_one(store))])
    store.end_run("run-1")
    assert len(lease(store, "run-2")) == 1
