"""Quotas beside what else decides when a job runs."""

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import JobState, NewJob
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.quotas.rules import Override
from jobpool.store.records.operating import Filter, Replay
from support.store import quotas
from support.store.quotas import KIND, OTHER, enqueue, ids, publish, quota, stamped
from support.store.storing import (
    KINDS,
    begin_run,
    ended,
    handed_back,
    lease,
    lease_one,
    misfit,
    new_job,
    snoozed,
    succeeded,
)

ENGINES = quotas.ENGINES
_replace = msgspec.structs.replace


def grant(store, run_id="run-1", **options):
    store.renew(run_id, 60.0, anew=True)
    return store.lease(run_id, {"cpu": 10, "io": 10}, KINDS, **options)


def accuse(store, **options):
    """Make a suspect of a job that needs the quota."""
    (job_id,) = enqueue(store, 1, **options)
    (granted,) = lease(store)
    store.settle([_replace(ended(granted, Outcome.LOST), suspect=True)])
    return job_id


def test_a_suspect_that_a_quota_blocks_is_not_due(store):
    """It keeps nobody else waiting, until there is a permit for it."""
    publish(store, quota(concurrency=1))
    suspect = accuse(store)
    store.pause(quota="stripe")
    plain = [one.id for one in store.enqueue([new_job(OTHER)] * 2)]
    batch = grant(store, suspects=False)
    assert (ids(batch.leases), batch.suspects_wait) == (plain, False)
    store.enqueue([new_job(OTHER)])
    assert [one.suspect for one in grant(store).leases] == [False]
    store.resume(quota="stripe")
    batch = grant(store)
    assert [(one.id, one.suspect, one.laned) for one in batch.leases] == [
        (suspect, True, True)
    ]


def test_a_suspect_is_not_leased_in_its_turn_like_others(store):
    """While it waits for another suspect, those behind it in its lane go on."""
    publish(store, quota(concurrency=9))
    first, second = enqueue(store, 2)
    store.settle(
        [_replace(ended(one, Outcome.LOST), suspect=True) for one in lease(store)]
    )
    assert ids(grant(store, alone=True).leases) in ([first], [second])
    (plain,) = enqueue(store, 1)
    assert ids(grant(store).leases) == [plain]


def test_a_suspect_takes_its_permit_before_all_others(store):
    """It is granted ahead of them, whatever their priorities."""
    publish(store, quota(concurrency=2))
    suspect = accuse(store)
    enqueue(store, 3, priority=9)
    batch = grant(store)
    assert len(batch.leases) == 2
    assert suspect in ids(batch.leases)
    assert store.buckets("stripe")[0].used == 2
    store.settle([succeeded(one) for one in batch.leases])
    assert store.buckets("stripe")[0].used == 0


def test_a_suspect_holds_its_permit_while_it_runs_alone(store):
    """It is a lease like others."""
    publish(store, quota(concurrency=1))
    suspect = accuse(store)
    enqueue(store, 1)
    batch = grant(store, alone=True)
    assert ids(batch.leases) == [suspect]
    assert grant(store).leases == ()


def test_a_misfit_that_is_handed_on_returns_its_permit(store_factory):
    """And is left to others, as one without quotas is."""
    store = store_factory()
    publish(store, quota(concurrency=1))
    publish(store, quota(concurrency=1), run_id="run-2", host="b")
    first, second = enqueue(store, 2)
    store.settle([misfit(lease_one(store))])
    assert ids(lease(store)) in ([first], [second])


def test_a_key_gives_the_job_that_there_is_whatever_holds_it_back(store):
    """A blocked job is a job."""
    publish(store, quota(concurrency=1))
    lease_first = enqueue(store, 1, key="a")
    assert enqueue(store, 1, key="a") == lease_first
    lease_one(store)
    waiting = enqueue(store, 1, unique="u")
    assert lease(store) == ()
    assert enqueue(store, 1, unique="u") == waiting


def test_a_job_may_expire_while_it_is_blocked(store, clock):
    """The time counts on."""
    publish(store, quota(concurrency=1))
    enqueue(store, 1)
    lease_one(store)
    (late,) = enqueue(store, 1, expires_in_ms=5_000)
    assert lease(store) == ()
    clock.advance(6)
    lease(store)
    assert store.get(late).state is JobState.CANCELED
    assert sum(row.waiting for row in store.buckets("stripe")) == 0


def test_a_job_that_expires_in_its_turn_uses_no_permit(store, clock):
    """The next one gets it."""
    publish(store, quota(concurrency=1, rate="1/h", burst=1))
    enqueue(store, 1, expires_in_ms=5_000)
    (kept,) = enqueue(store, 1)
    clock.advance(5)
    assert ids(lease(store)) + ids(lease(store)) == [kept]


def test_a_blocked_job_may_be_canceled(store):
    """It takes no permit with it."""
    publish(store, quota(concurrency=1))
    _, second, third = enqueue(store, 3)
    granted = lease_one(store)
    assert lease(store) == ()
    assert store.cancel([second]) == 1
    store.settle([succeeded(granted)])
    assert ids(lease(store)) == [third]


def test_a_canceled_attempt_returns_its_permits_when_it_has_ended(store):
    """Until then it may use what they stand for."""
    publish(store, quota(concurrency=1))
    enqueue(store, 2)
    granted = lease_one(store)
    store.cancel([granted.id])
    assert lease(store) == ()
    store.settle([handed_back(granted)])
    assert len(lease(store)) == 1


def test_a_job_that_is_retried_later_is_held_to_its_quotas_again(store, clock):
    """It comes back to where it was."""
    publish(store, quota(concurrency=1))
    (first,) = enqueue(store, 1)
    store.settle([snoozed(lease_one(store), 5.0)])
    (second,) = enqueue(store, 1)
    granted = lease_one(store)
    assert granted.id == second
    clock.advance(6)
    assert lease(store) == ()
    store.settle([succeeded(granted)])
    assert ids(lease(store)) == [first]


def test_a_job_that_falls_due_is_held_to_its_quotas(store, clock):
    """As if it had been enqueued then."""
    publish(store, quota(concurrency=1))
    enqueue(store, 2, delay_ms=5_000)
    assert lease(store) == ()
    clock.advance(5)
    assert len(lease(store)) == 1
    assert lease(store) == ()


def test_a_job_that_is_revived_is_held_to_its_quotas(store):
    """And so is one that replaces another."""
    publish(store, quota(concurrency=1))
    first, second = enqueue(store, 2)
    store.cancel([first, second])
    assert store.revive([first], [JobState.CANCELED]) == 1
    (replaced,) = store.replay(
        [Replay(job_id=second, new=NewJob(kind=KIND, pool="cpu", payload=b"{}"))]
    )
    assert ids(lease(store)) in ([first], [replaced])
    assert lease(store) == ()


def test_jobs_that_wait_for_a_quota_are_not_due(store):
    """No slot is opened for them."""
    publish(store, quota(concurrency=2), needs={KIND: ["stripe"], OTHER: []})
    enqueue(store, 9)
    store.enqueue([new_job(OTHER)] * 3)
    assert store.due(KINDS, 100)["cpu"] == 2 + 3
    lease(store)
    assert store.due(KINDS, 100)["cpu"] == 0


def test_jobs_that_fall_due_while_a_quota_holds_them_are_not_due(store, clock):
    """A wave of retries opens no slot either; with a permit it does."""
    publish(store, quota(concurrency=1), needs={KIND: ["stripe"], OTHER: []})
    enqueue(store, 1)
    (held,) = lease(store)
    enqueue(store, 9, delay_ms=5_000)
    store.enqueue([new_job(OTHER, delay_ms=5_000)] * 3)
    clock.advance(5)
    assert store.due(KINDS, 100)["cpu"] == 3
    store.settle([succeeded(held)])
    assert store.due(KINDS, 100)["cpu"] == 3 + 9


def test_pruning_forgets_what_has_ended_and_nothing_else(store, clock):
    """A bucket in use stays, and so does a rate that is not full again."""
    publish(store, quota(concurrency=4, rate="1/d", burst=4))
    enqueue(store, 9)
    store.set_quota(Override(quota="stripe", burst=4), for_s=60)
    granted = lease(store)
    used = len(granted)
    clock.advance(3600)
    store.renew("run-1", 60.0, anew=True)
    store.prune(Retention())
    assert store.buckets("stripe")[0].used == used
    assert lease(store) == ()
    store.settle([succeeded(one) for one in granted])
    clock.advance(2.1 * 86400)
    store.prune(Retention())
    assert len(lease(store)) == 2


def test_a_pruned_job_takes_its_buckets_with_it_when_nothing_waits(store, clock):
    """No trace stays of values that were counted once."""
    publish(store, quota(concurrency=2, per="args.vendor"))
    enqueue(store, 1, values={"vendor": "a"})
    store.settle([succeeded(lease_one(store))])
    clock.advance(2 * 86400)
    store.prune(Retention(succeeded_s=60.0))
    assert store.count(Filter()) == 0
    assert store.buckets("stripe") == []


def test_two_pools_share_a_bucket_within_one_call(store):
    """What the first has taken, the second does not get."""
    publish(
        store, quota(concurrency=3), needs={KIND: ["stripe"], "shop.fetch": ["stripe"]}
    )
    enqueue(store, 2, KIND)
    enqueue(store, 2, "shop.fetch")
    assert len(grant(store).leases) == 3


def test_a_job_may_be_put_into_another_pool_than_its_kind_has(store):
    """It is leased there, under the same quotas."""
    publish(store, quota(concurrency=2))
    enqueue(store, 2)
    store.enqueue([_replace(stamped(), pool="io", lane=None)] * 2)
    kinds = {"cpu": [KIND], "io": [KIND]}
    store.renew("run-1", 60.0, anew=True)
    granted = store.lease("run-1", {"cpu": 1, "io": 9}, kinds).leases
    assert sorted(one.pool for one in granted) == ["cpu", "io"]


def test_an_erased_job_says_nothing_of_what_it_was_counted_by(store, clock):
    """The value may be somebody's name."""
    publish(store, quota(concurrency=2, per="args.vendor"))
    (job_id,) = enqueue(store, 1, values={"vendor": "ann"}, tenant="t")
    store.settle([succeeded(lease_one(store))])
    assert store.erase([job_id]) == 1
    clock.advance(2 * 86400)
    store.prune(Retention())
    assert store.buckets("stripe") == []


@pytest.mark.parametrize(
    "wrong",
    [{"quota_values": {"a": 1}}, {"quota_values": ["a"]}, {"lane": 0}, {"lane": "x"}],
)
def test_a_stamp_that_cannot_be_is_refused(store, wrong):
    """Nothing is stored."""
    begin_run(store)
    with pytest.raises(Exception, match="nothing was enqueued"):
        store.enqueue([new_job(**wrong)])
    assert store.count(Filter()) == 0
