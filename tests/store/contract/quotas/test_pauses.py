"""Pauses of tenants and quotas, beside those of kinds, pools and the store."""

import pytest

from support.store import quotas
from support.store.quotas import KIND, OTHER, enqueue, ids, publish, quota
from support.store.storing import KINDS, begin_run, lease, new_job

ENGINES = quotas.ENGINES


def test_a_paused_quota_lets_nothing_begin_that_needs_it(store):
    """Other jobs do, and those that run go on."""
    publish(store, quota(concurrency=5), needs={KIND: ["stripe"], OTHER: []})
    made = enqueue(store, 3)
    assert len(lease(store, limit=1)) == 1
    assert store.pause(quota="stripe", who="ann", note="down")
    plain = [one.id for one in store.enqueue([new_job(OTHER)] * 2)]
    assert ids(lease(store)) == plain
    (row,) = store.quotas()
    assert (row.paused.who, row.paused.note) == ("ann", "down")
    assert store.paused() == [("quota", "stripe")]
    assert store.resume(quota="stripe")
    assert ids(lease(store)) == made[1:]


def test_the_pause_of_a_quota_ends_by_itself(store, clock):
    """The store says when."""
    publish(store, quota(concurrency=5))
    enqueue(store, 1)
    store.pause(quota="stripe", for_s=60)
    store.renew("run-1", 120.0, anew=True)
    batch = store.lease("run-1", {"cpu": 5}, KINDS)
    assert (batch.leases, batch.next_due_in_s) == ((), 60.0)
    clock.advance(60)
    assert len(lease(store)) == 1


def test_a_kind_that_needs_a_paused_quota_no_longer_goes_on(store):
    """Though it needs another one, and the first one stays paused for others."""
    publish(store, quota("s", concurrency=5), needs={KIND: ["s"], OTHER: ["s"]})
    made = enqueue(store, 2)
    enqueue(store, 1, OTHER)
    store.pause(quota="s")
    assert lease(store) == ()
    both = quota("s", concurrency=5), quota("t", concurrency=5)
    publish(store, *both, needs={KIND: ["t"], OTHER: ["s"]})
    assert ids(lease(store)) == made


def test_the_jobs_of_a_paused_tenant_wait(store, clock):
    """Of whatever kind; those of others and of nobody do not."""
    begin_run(store)
    acme = store.enqueue([new_job(tenant="acme"), new_job(OTHER, tenant="acme")])
    free = store.enqueue([new_job(tenant="other"), new_job()])
    assert store.pause(tenant="acme", for_s=60)
    assert ids(lease(store)) == ids(free)
    clock.advance(60)
    assert ids(lease(store)) == ids(acme)


def test_a_tenant_whose_pause_is_undone_goes_on_at_once(store):
    """And what came meanwhile is not forgotten."""
    begin_run(store)
    store.pause(tenant="acme")
    made = store.enqueue([new_job(tenant="acme", priority=n) for n in range(3)])
    assert lease(store) == ()
    assert [row.name for row in store.tenants()] == ["acme"]
    assert store.tenants()[0].paused is not None
    assert store.resume(tenant="acme")
    assert not store.resume(tenant="acme")
    assert ids(lease(store)) == ids(made)[::-1]
    assert store.tenants() == []


@pytest.mark.parametrize(
    "what", [{"kind": KIND}, {"pool": "cpu"}, {"whole_store": True}]
)
def test_other_pauses_hold_for_jobs_with_quotas_too(store, what):
    """And use up none of their permits."""
    publish(store, quota(concurrency=5, rate="1/h", burst=5))
    made = enqueue(store, 2)
    store.pause(**what)
    assert lease(store) == ()
    assert sum(row.used for row in store.buckets("stripe")) == 0
    store.resume(**what)
    assert ids(lease(store)) == made


def test_a_pause_of_a_quota_that_nobody_publishes_holds_once_it_is(store):
    """Whoever pauses it may be ahead of the deployment."""
    begin_run(store)
    store.pause(quota="stripe")
    publish(store, quota(concurrency=5))
    enqueue(store, 1)
    assert lease(store) == ()
