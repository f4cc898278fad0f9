"""Limits on jobs that wait: what counts, what is refused, and when to come back."""

import pytest

from jobpool.core.jobs.job import JobState, RequestReport
from jobpool.core.rules.admission import Admission, Bound, OnFull
from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.errors import QueueFull, UsageError
from jobpool.store.operations.producers.sight import StoredSight
from support.store import quotas
from support.store.storing import (
    begin_run,
    handed_back,
    lease,
    lease_one,
    new_job,
    succeeded,
)

FULL = pytest.raises
FETCH, THUMBNAIL = new_job("shop.fetch", "io"), new_job()


def depth(section, name, most):
    return Admission(**{section: {name: Bound(depth_max=most)}})


def age(seconds, **sections):
    return Admission(age_max_s=seconds, **sections)


@pytest.fixture
def limited(store_factory):
    """Make a store with limits, and a run in it."""

    def make(admission):
        store = store_factory(admission=admission)
        begin_run(store)
        return store

    return make


def test_other_limits_hold_from_the_next_job_on(limited):
    """Wider ones and narrower ones, of the whole queue as well."""
    store = limited(depth("pools", "io", 1))
    store.enqueue([FETCH])
    store.admit_by(Admission(depth_max=2))
    store.enqueue([FETCH])
    with FULL(QueueFull, match="the queue holds 2 unfinished jobs of at most 2"):
        store.enqueue([FETCH])
    store.admit_by(depth("pools", "io", 3))
    store.enqueue([FETCH])
    with FULL(QueueFull, match="pool io holds 3"):
        store.enqueue([FETCH])


@pytest.mark.parametrize(
    ("section", "name", "inside", "outside"),
    [
        ("kinds", "shop.fetch", [FETCH, new_job("shop.fetch", "cpu")], THUMBNAIL),
        ("pools", "io", [FETCH, new_job("shop.other", "io", priority=9)], THUMBNAIL),
        ("tenants", "acme", [new_job(tenant="acme"), new_job(pool="io", tenant="acme")],
         new_job(tenant="other")),
    ],
)  # fmt: skip
def test_a_limit_counts_the_due_jobs_of_its_scope_and_refuses_exactly_beyond(
    limited, section, name, inside, outside
):
    """Of all pools, kinds and priorities; other jobs and later ones do not count."""
    store = limited(depth(section, name, 3))
    one, other = inside
    store.enqueue([outside] * 9)
    store.enqueue([new_job(one.kind, one.pool, tenant=one.tenant, delay_ms=1)] * 9)
    store.enqueue([one, other])
    with FULL(QueueFull) as caught:
        store.enqueue([one, other])
    found = caught.value
    assert found.what == f"{section[:-1]} {name}"
    assert (found.depth, found.depth_max) == (2, 3)
    assert found.age_max_s is None
    store.enqueue([other])
    with FULL(QueueFull, match=f"{name} holds 3 due jobs that wait of at most 3; 1"):
        store.enqueue([one])
    store.enqueue([outside])
    kinds = {one.pool: [one.kind, other.kind]}
    store.renew("run-1", 60.0, anew=True)
    assert store.lease("run-1", {one.pool: 100}, kinds).leases
    store.enqueue([one])  # What has begun waits no longer.


def test_a_batch_fits_or_is_refused_whole(limited):
    """Jobs of other kinds in it as well; and one that can never fit is told so."""
    store = limited(depth("kinds", "shop.fetch", 2))
    with FULL(QueueFull, match="never fit in: enqueue at most 2 at a time"):
        store.enqueue([FETCH] * 3)
    with FULL(QueueFull, match="holds 0 due"):
        store.enqueue([THUMBNAIL, FETCH, FETCH, THUMBNAIL, FETCH])
    assert store.waiting() == []
    store.enqueue([THUMBNAIL, FETCH, THUMBNAIL, FETCH])
    with FULL(QueueFull, match="holds 2 due"):
        store.enqueue([THUMBNAIL, FETCH])
    assert sum(row.jobs for row in store.waiting()) == 4


def test_with_a_depth_of_none_nothing_is_accepted(limited):
    """And that no waiting helps is said."""
    store = limited(depth("tenants", "acme", 0))
    with FULL(QueueFull, match="Nothing is accepted there: depth_max is 0"):
        store.enqueue([new_job(tenant="acme")])
    store.enqueue([new_job(tenant="other"), new_job()])


def test_a_job_that_exists_needs_no_room(limited):
    """By its key or its unique text, stored before or earlier in the same call."""
    store = limited(depth("kinds", "shop.thumbnail", 2))
    first = store.enqueue([new_job(key="k"), new_job(unique="u")])
    again = store.enqueue([new_job(key="k"), new_job(unique="u"), new_job(key="k")])
    assert [one.id for one in again] == [first[0].id, first[1].id, first[0].id]
    with FULL(QueueFull):
        store.enqueue([new_job(key="other")])
    lease_one(store)
    twice = store.enqueue([new_job(key="new"), new_job(key="new"), new_job(key="k")])
    assert [one.created for one in twice] == [True, False, False]


def test_the_oldest_job_may_wait_for_so_long(limited, clock):
    """Then its scope is full, until it has begun; the refusal says which it is."""
    store = limited(age(60.0, kinds={"shop.fetch": Bound(age_max_s=10.0, depth_max=5)}))
    store.enqueue([FETCH, new_job("shop.fetch", "io", priority=5)])
    clock.advance(10)
    store.enqueue([FETCH])
    clock.advance(1)
    with FULL(QueueFull, match=r"shop.fetch has a due job that has waited") as caught:
        store.enqueue([FETCH])
    found = caught.value
    assert (found.what, found.age_max_s, found.depth) == ("kind shop.fetch", 10.0, 3)
    assert found.age_s == 11.0
    store.enqueue([THUMBNAIL])
    clock.advance(50)
    with FULL(QueueFull, match=r"the queue has a due job \(of kind shop.fetch\)"):
        store.enqueue([THUMBNAIL])
    (important,) = lease(store, limit=1, pool="io")
    assert important.priority == 5
    with FULL(QueueFull):  # The oldest has the lowest priority.
        store.enqueue([THUMBNAIL])
    lease(store, limit=2, pool="io")
    store.enqueue([THUMBNAIL, FETCH])


def test_a_clock_that_is_set_back_makes_nothing_old(limited, clock):
    """An age below zero is none; from then on time counts as ever."""
    store = limited(age(10.0))
    store.enqueue([THUMBNAIL])
    clock.now_ms -= 3_600_000
    for passed_s in (0, 4, 4):
        clock.advance(passed_s)
        store.enqueue([THUMBNAIL])
    clock.advance(3)
    with FULL(QueueFull) as caught:
        store.enqueue([THUMBNAIL])
    assert caught.value.age_s == 11.0


def test_jobs_that_are_made_runnable_otherwise_are_never_refused(limited, clock):
    """What was due later, handed back or revived exists already."""
    store = limited(depth("kinds", "shop.thumbnail", 1))
    (first,) = store.enqueue([new_job()])
    granted = lease_one(store)
    store.enqueue([new_job(delay_ms=1000)] * 3)
    store.enqueue([new_job()])
    store.settle([handed_back(granted)])
    store.cancel([first.id])
    assert store.revive([first.id], [JobState.CANCELED]) == 1
    clock.advance(2)
    assert len(lease(store)) == 5


def test_when_to_come_back_follows_from_how_fast_jobs_end(limited, clock):
    """Of the scope alone; if nothing has ended lately, nobody knows."""
    store = limited(depth("kinds", "shop.thumbnail", 30))
    store.enqueue([THUMBNAIL] * 30)
    with FULL(QueueFull, match=r"Try again in 1m00s \(none has ended") as caught:
        store.enqueue([THUMBNAIL])
    assert caught.value.retry_after_s == 60.0
    store.enqueue([FETCH] * 5)
    fetched = lease(store, pool="io")
    store.settle([succeeded(one) for one in (*lease(store, limit=12), *fetched)])
    store.enqueue([THUMBNAIL] * 12)
    clock.advance(1.5)
    with FULL(QueueFull, match=r"0\.2 end a second") as caught:
        store.enqueue([THUMBNAIL] * 3)
    assert caught.value.retry_after_s == pytest.approx(3 / 0.2)
    with FULL(QueueFull) as caught:
        store.enqueue([THUMBNAIL] * 20)
    assert caught.value.retry_after_s == pytest.approx(20 / 0.2)


def test_a_pause_that_ends_is_waited_for(limited, clock):
    """And that it holds the jobs is said."""
    store = limited(depth("kinds", "shop.thumbnail", 10))
    store.enqueue([THUMBNAIL] * 10)
    store.pause(kind="shop.fetch", for_s=3000)
    store.pause(kind="shop.thumbnail", for_s=600)
    with FULL(QueueFull, match="a pause or a quota holds them for 10m00s") as caught:
        store.enqueue([THUMBNAIL])
    assert caught.value.retry_after_s == 660.0
    clock.advance(601)
    with FULL(QueueFull, match="none has ended"):
        store.enqueue([THUMBNAIL])


def test_the_whole_queue_says_as_much(limited):
    """All its fields are set, and the wait is never less than a second."""
    store = limited(Admission(depth_max=2))
    store.enqueue([THUMBNAIL])
    (one,) = lease(store)
    store.settle([succeeded(one)])
    store.enqueue([new_job(delay_ms=1)] * 2)
    with FULL(QueueFull) as caught:
        store.enqueue([THUMBNAIL])
    found = caught.value
    assert (found.what, found.depth, found.depth_max) == ("the queue", 2, 2)
    assert (found.age_s, found.age_max_s) == (None, None)
    assert found.retry_after_s == pytest.approx(60.0)


def later(**limits):
    return Admission(on_full=OnFull.LATER, **limits)


def states_of(store, answers):
    return [store.get(one.id).state for one in answers]


def test_what_finds_no_room_may_be_stored_for_later(limited, clock):
    """In its order; what fits in is due at once, and nobody is refused."""
    store = limited(later(kinds={"shop.thumbnail": Bound(depth_max=2)}))
    answers = store.enqueue([THUMBNAIL, FETCH, THUMBNAIL, THUMBNAIL, FETCH])
    runnable, pending = JobState.RUNNABLE, JobState.PENDING
    assert [one.state for one in answers] == [
        runnable, runnable, runnable, pending, runnable,
    ]  # fmt: skip
    assert states_of(store, answers) == [one.state for one in answers]
    job = store.get(answers[3].id)
    assert 60 <= (job.run_at_ms - clock.now_ms) / 1000 <= 75
    (expiring,) = store.enqueue([new_job(expires_in_ms=4000)])
    assert (store.get(expiring.id).run_at_ms - clock.now_ms) / 1000 == 2.0
    lease(store)
    (fits,) = store.enqueue([THUMBNAIL])
    assert fits.state is runnable


def test_jobs_for_later_are_due_one_after_another(limited, clock):
    """As fast as jobs end, so that they do not all come at the same moment."""
    store = limited(later(kinds={"shop.thumbnail": Bound(depth_max=60)}))
    store.enqueue([THUMBNAIL] * 60)
    store.settle([succeeded(one) for one in lease(store, limit=60)])
    store.enqueue([THUMBNAIL] * 60)
    answers = store.enqueue([THUMBNAIL] * 20)
    answers += store.enqueue([new_job(priority=1)] * 20)
    due_s = [(store.get(one.id).run_at_ms - clock.now_ms) / 1000 for one in answers]
    for place, seconds in enumerate(due_s):
        assert place + 1 <= seconds <= 1.25 * (place + 1) + 0.001


def test_the_whole_queue_may_store_for_later_too(limited):
    """By its depth and by the age of its oldest job."""
    store = limited(later(depth_max=2, age_max_s=10.0))
    answers = store.enqueue([THUMBNAIL] * 3)
    assert [one.state.value for one in answers] == ["runnable", "runnable", "pending"]


def test_another_producer_has_limits_of_its_own(store_factory):
    """Its limits may have been changed: what waits is counted, whoever stored it."""
    before, after = (
        store_factory(admission=depth("pools", "cpu", most)) for most in (9, 2)
    )
    before.enqueue([THUMBNAIL] * 5)
    with FULL(QueueFull, match="holds 5 due jobs that wait of at most 2"):
        after.enqueue([THUMBNAIL])
    before.enqueue([THUMBNAIL])


def test_producers_together_exceed_a_limit_by_a_sixteenth_for_each_other_one(
    store_factory,
):
    """Not more, however they take turns, while nothing is leased."""
    most, producers = 320, 5
    stores = [
        store_factory(admission=depth("pools", "cpu", most)) for _ in range(producers)
    ]
    refused, stored = set(), 0
    for _ in range(most):
        if len(refused) == producers:
            break
        for place, store in enumerate(stores):
            try:
                stored += len(store.enqueue([THUMBNAIL] * (1 + place)))
            except QueueFull:
                refused.add(place)
            else:
                refused.discard(place)
    assert most - producers < stored <= most + (producers - 1) * most / 16


def test_a_refusal_leaves_a_transaction_as_it_was(limited):
    """What was stored before in it is kept, and rolled back with it."""
    store = limited(depth("pools", "cpu", 2))
    with store.transaction():
        store.enqueue([THUMBNAIL] * 2)
        with FULL(QueueFull):
            store.enqueue([THUMBNAIL])
    assert sum(row.jobs for row in store.waiting()) == 2


def test_it_is_told_what_is_full(limited, clock):
    """The queue, pools, kinds and those tenants that are; others are left out."""
    bound = Bound(depth_max=2)
    store = limited(
        Admission(
            depth_max=5,
            age_max_s=30.0,
            pools={"cpu": Bound(depth_max=4), "io": Bound(depth_max=0)},
            kinds={"shop.thumbnail": bound, "shop.fetch": Bound(age_max_s=10.0)},
            tenants={"*": bound, "acme": Bound(depth_max=9), "old": Bound(age_max_s=9)},
        )
    )
    assert [row.what for row in store.full()] == ["pool io"]
    store.enqueue([new_job(tenant="one"), new_job(tenant="old")])
    store.enqueue([new_job("shop.other", tenant=tenant) for tenant in ("acme", "one")])
    store.enqueue([new_job(delay_ms=60_000)])
    rows = {row.what: row for row in store.full()}
    assert rows.keys() == {
        "the queue", "pool cpu", "pool io", "kind shop.thumbnail", "tenant one",
    }  # fmt: skip
    one = rows["tenant one"]
    assert (one.depth, one.depth_max, one.age_s, one.retry_after_s) == (2, 2, 0.0, 60.0)
    assert rows["the queue"].depth == 5
    clock.advance(10)
    assert [r.what for r in store.full() if r.what.startswith("tenant")] == [
        "tenant one", "tenant old",
    ]  # fmt: skip


def test_what_takes_long_to_count_is_counted_before_others_have_to_wait(
    limited, monkeypatch
):
    """Not in the transaction that stores; a wrong job is refused as ever."""
    store = limited(depth("pools", "cpu", 20_000))
    if not hasattr(store._database, "is_writing"):
        return  # In memory nobody waits for another process.
    within = []
    look = StoredSight.look

    def watched(sight, *what):
        within.append(store._database.is_writing)
        return look(sight, *what)

    monkeypatch.setattr(StoredSight, "look", watched)
    store.enqueue([THUMBNAIL] * 10)
    assert within == [False]
    store.enqueue([THUMBNAIL] * 2000)
    assert within == [False, True]
    with pytest.raises(UsageError, match="tenant"):
        store.enqueue([new_job(tenant=["acme"])])


def test_an_open_breaker_is_part_of_when_to_come_back(store_factory, clock):
    """Nothing of the kind begins before its pause is over."""
    store = store_factory(admission=depth("kinds", quotas.KIND, 2))
    rule = BreakerRule(requests=4, pause_s=30)
    quotas.publish(store, quotas.quota(breaker=rule))
    quotas.enqueue(store, 2)
    store.report_requests([RequestReport("stripe", "", 999_999, 4, 4)])
    assert not lease(store)  # Its lane waits since somebody has looked.
    with FULL(QueueFull, match="a pause or a quota holds them for 30s") as caught:
        quotas.enqueue(store)
    assert caught.value.retry_after_s == 60.0 + 30.0
