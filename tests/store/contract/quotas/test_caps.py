"""Caps: at no instant are more permits held than there are."""

import msgspec
import pytest

from jobpool.core.rules.quotas.definition import Need
from support.store import quotas
from support.store.quotas import KIND, OTHER, enqueue, ids, publish, quota, stamped
from support.store.storing import (
    begin_run,
    ended,
    handed_back,
    lease,
    misfit,
    new_job,
    snoozed,
    succeeded,
)

ENGINES = quotas.ENGINES
_replace = msgspec.structs.replace


def test_no_more_jobs_are_leased_than_the_cap_allows(store):
    """Over all calls; the first that are due go first."""
    publish(store, quota(concurrency=2))
    made = enqueue(store, 4)
    granted = lease(store)
    assert ids(granted) == made[:2]
    assert all(one.laned and one.begin_within_s is None for one in granted)
    assert lease(store) == ()


@pytest.mark.parametrize(
    "end",
    [succeeded, handed_back, ended, snoozed, misfit],
    ids=["success", "hand back", "failure", "snooze", "misfit"],
)
def test_a_permit_returns_with_the_end_of_its_lease(store, end):
    """However it ends."""
    publish(store, quota(concurrency=1))
    first, second = enqueue(store, 2)
    (granted,) = lease(store)
    store.settle([end(granted)])
    following = lease(store)
    assert len(following) == 1
    assert following[0].id in {first, second}


def test_a_permit_returns_when_a_dead_run_is_buried(store_factory, clock):
    """Whoever reclaims its jobs settles them; until then it counts."""
    first, second = store_factory(), store_factory()
    publish(first, quota(concurrency=1))
    publish(second, quota(concurrency=1), run_id="run-2")
    made, _ = enqueue(first, 2)
    (granted,) = lease(first)
    clock.advance(61)
    assert lease(second, "run-2") == ()
    with second.transaction():
        assert second.seize("run-1")
        second.settle([handed_back(granted)])
        second.end_run("run-1")
    assert ids(lease(second, "run-2")) == [made]


def test_two_runs_share_a_cap(store_factory):
    """It is the fleet's, not one host's."""
    first, second = store_factory(), store_factory()
    publish(first, quota(concurrency=3))
    publish(second, quota(concurrency=3), run_id="run-2", host="b")
    enqueue(first, 6)
    assert len(lease(first, limit=2)) == 2
    assert len(lease(second, "run-2")) == 1


def test_two_kinds_share_a_quota(store):
    """One need each: what one holds, the other has not."""
    publish(store, quota(concurrency=2), needs={KIND: ["stripe"], OTHER: ["stripe"]})
    enqueue(store, 2, KIND)
    enqueue(store, 2, OTHER)
    granted = lease(store)
    assert len(granted) == 2
    store.settle([succeeded(one) for one in granted])
    assert len(lease(store)) == 2


def test_a_cost_takes_so_many_permits(store):
    """All of them or none."""
    publish(store, quota(concurrency=5), needs={KIND: [Need("stripe", 2)]})
    enqueue(store, 3)
    granted = lease(store)
    assert len(granted) == 2
    assert store.buckets("stripe")[0].used == 4


def test_all_quotas_of_a_job_are_decided_together(store):
    """None of them is held while another is awaited."""
    publish(
        store,
        quota("wide", concurrency=2),
        quota("narrow", concurrency=1),
        needs={KIND: ["wide", "narrow"], OTHER: ["wide"]},
    )
    enqueue(store, 3, KIND)
    other = enqueue(store, 3, OTHER)
    granted = lease(store)
    assert sorted(one.kind for one in granted) == [OTHER, KIND]
    assert other[0] in ids(granted)
    assert {row.name: row.used for row in store.quotas()} == {"wide": 2, "narrow": 1}


def test_each_value_of_what_it_counts_by_has_a_bucket_of_its_own(store):
    """A full one does not hold back another."""
    publish(store, quota(concurrency=1, per="args.vendor"))
    first = enqueue(store, 2, values={"vendor": "a"})
    second = enqueue(store, 2, values={"vendor": "b"})
    assert ids(lease(store)) == [first[0], second[0]]
    assert {row.value: row.used for row in store.buckets("stripe")} == {"a": 1, "b": 1}


def test_a_quota_by_tenant_has_a_bucket_for_each_and_one_for_none(store):
    """Jobs without a tenant share the empty one."""
    publish(store, quota(concurrency=1, per="tenant"))
    acme = enqueue(store, 2, tenant="acme")
    nobody = enqueue(store, 2)
    assert ids(lease(store)) == [acme[0], nobody[0]]
    assert {row.value for row in store.buckets("stripe")} == {"acme", ""}


def test_a_kind_has_a_cap_of_its_own(store):
    """Beside those that it shares, and other kinds have nothing to do with it."""
    publish(store, caps={KIND: 1})
    enqueue(store, 2)
    plain = [one.id for one in store.enqueue([new_job(OTHER)] * 2)]
    granted = lease(store)
    assert [one.kind for one in granted].count(KIND) == 1
    assert set(plain) < set(ids(granted))
    assert [one.laned for one in granted if one.kind == OTHER] == [False, False]


def test_a_job_that_no_client_has_stamped_is_held_to_its_quotas_all_the_same(store):
    """Other clients, SQL and older code leave that to the claim."""
    publish(store, quota(concurrency=1, per="args.vendor"))
    made = store.enqueue(
        [
            new_job(payload=payload)
            for payload in (
                b'{"vendor":"a"}',
                b'{"vendor":"a"}',
                b'{"vendor":7}',
                b'{"vendor":true}',
                b'{"vendor":null}',
                b'{"vendor":[1]}',
                b"{}",
            )
        ]
    )
    made += store.enqueue([stamped(values={"vendor": "7"})])
    granted = lease(store)
    assert ids(granted) == [made[at].id for at in (0, 2, 3, 4)]
    assert {row.value for row in store.buckets("stripe")} == {"a", "7", "true", ""}


def test_a_stamp_is_believed_over_the_arguments(store):
    """It has defaults in it, and arguments may be encoded."""
    publish(store, quota(concurrency=1, per="args.vendor"))
    enqueue(store, 2, values={"vendor": "b"}, payload=b'{"vendor":"a"}')
    assert len(lease(store)) == 1
    assert [row.value for row in store.buckets("stripe")] == ["b"]


def test_a_path_may_lead_into_an_argument(store):
    """As dotted in ``per``."""
    publish(store, quota(concurrency=1, per="args.order.vendor"))
    store.enqueue([new_job(payload=b'{"order":{"vendor":"a"}}')] * 2)
    assert len(lease(store)) == 1
    assert [row.value for row in store.buckets("stripe")] == ["a"]


def test_higher_priorities_get_permits_first(store):
    """Whatever waits for longer below."""
    publish(store, quota(concurrency=2))
    low = enqueue(store, 2)
    high = enqueue(store, 1, priority=5)
    assert ids(lease(store)) == [high[0], low[0]]


def test_jobs_without_quotas_are_leased_in_their_turn_beside_those_with(store):
    """By priority, then by how long they are due, whichever of both they are."""
    publish(store, quota(concurrency=9))
    made = [
        *store.enqueue([new_job(OTHER, priority=1)]),
        *store.enqueue([stamped(priority=2)]),
        *store.enqueue([new_job(OTHER)]),
        *store.enqueue([stamped()]),
    ]
    by_turn = [made[at].id for at in (1, 0, 2, 3)]
    assert ids(lease(store, limit=3)) == by_turn[:3]
    assert ids(lease(store)) == by_turn[3:]


@pytest.mark.parametrize("lower", ["with_quotas", "without"])
def test_a_short_lane_leaves_its_part_to_others_of_its_priority(store, lower):
    """Not to jobs of a lower one, though each lane is asked for a part of the whole."""
    publish(store, quota(concurrency=9, per="args.vendor"))
    by_turn = [
        *enqueue(store, 1, values={"vendor": "a"}, priority=1),
        *enqueue(store, 4, values={"vendor": "b"}, priority=1),
    ]
    if lower == "with_quotas":
        enqueue(store, 4, values={"vendor": "a"})
    else:
        store.enqueue([new_job(OTHER)] * 4)
    assert ids(lease(store, limit=4)) == by_turn[:4]


def test_what_is_blocked_does_not_keep_a_free_one_waiting(store):
    """A full bucket is skipped, however many wait for it and however high."""
    publish(store, quota(concurrency=1, per="args.vendor"))
    enqueue(store, 200, values={"vendor": "a"}, priority=9)
    assert len(lease(store, limit=10)) == 1
    (free,) = enqueue(store, 1, values={"vendor": "b"})
    assert ids(lease(store, limit=10)) == [free]


@pytest.mark.parametrize("ahead", [0, 2, 4])
def test_no_job_passes_one_behind_many_lanes_that_were_not_seen_to_be_blocked(
    store, ahead
):
    """A burst for a hundred full buckets, one job of a lower priority, plain ones."""
    publish(store, quota(concurrency=1, per="args.vendor"))
    burst = [stamped(values={"vendor": str(n)}, priority=9) for n in range(100)]
    store.enqueue(burst)
    assert sum(len(lease(store, limit=100)) for _ in range(2)) == 100
    enqueue(store, 1, values={"vendor": "free"})
    store.settle([succeeded(one) for one in lease(store)])
    store.enqueue(burst)
    (middle,) = enqueue(store, 1, values={"vendor": "free"}, priority=5)
    plain = store.enqueue([new_job(OTHER)] * 4)
    store.renew("run-1", 60.0, anew=True)
    kinds = {"cpu": [KIND, OTHER]}
    found = store.lease("run-1", {"cpu": 4}, kinds, ahead={"cpu": ahead}).leases
    first = [] if ahead == 4 else [middle]  # of one permit none is leased ahead
    assert ids(found) == [*first, *(one.id for one in plain)][:4]


def test_permits_are_not_all_leased_ahead_of_slots(store):
    """At most half of what is free goes to leases for which no slot is free yet."""
    publish(store, quota(concurrency=8))
    enqueue(store, 20)
    store.renew("run-1", 60.0, anew=True)
    ahead = store.lease("run-1", {"cpu": 8}, {"cpu": [KIND]}, ahead={"cpu": 8})
    assert len(ahead.leases) == 4
    now = store.lease("run-1", {"cpu": 8}, {"cpu": [KIND]})
    assert len(now.leases) == 4


def test_a_run_that_does_not_know_a_kind_gets_none_of_its_jobs(store_factory):
    """Lanes are of kinds, as queues are."""
    store = store_factory()
    publish(store, quota(concurrency=5))
    begin_run(store, "run-2")
    enqueue(store, 2)
    batch = store.lease("run-2", {"cpu": 5}, {"cpu": [OTHER]})
    assert batch.leases == ()


def test_a_permit_that_was_taken_back_with_its_transaction_was_never_taken(store):
    """The lease and its permits are one."""
    publish(store, quota(concurrency=1))
    enqueue(store, 1)

    def claim_and_fail():
        with store.transaction():
            assert len(store.lease("run-1", {"cpu": 1}, {"cpu": [KIND]}).leases) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        claim_and_fail()
    assert len(lease(store)) == 1
