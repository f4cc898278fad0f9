"""Fair pools: whoever waits gets starts by weight, and is owed nothing else."""

from collections import Counter

import pytest

from jobpool.core.rules.quotas.definition import Quota, Tenant
from support.store.fairness import (
    begin,
    check_shares,
    enqueue_for,
    of_whom,
    publish_pool,
    run_some,
)
from support.store.quotas import KIND, OTHER, stamped
from support.store.storing import handed_back, snoozed, succeeded

WANTED = [1, 7, 3, 16, 2, 1, 1, 5, 24, 1, 4, 1, 2, 8]
"""Slots that are free at once, claim by claim: 76."""


def test_nobody_of_equal_weight_begins_over_twice_as_often_as_another(store):
    """Though one has a flood of jobs that came first, and another two kinds."""
    publish_pool(store)
    enqueue_for(store, "flood", 100)
    enqueue_for(store, "small", 30)
    enqueue_for(store, "both", 15)
    enqueue_for(store, "both", 15, OTHER)
    claims = [of_whom(run_some(store, want)) for want in WANTED]
    assert [sum(one.values()) for one in claims] == WANTED
    check_shares(claims, ["flood", "small", "both"])


def test_jobs_of_one_tenant_begin_in_their_turn(store, clock):
    """Its share goes to what is due first, whichever kind that is."""
    publish_pool(store)
    made = []
    for kind in (KIND, OTHER, OTHER, KIND, OTHER, KIND):
        made += enqueue_for(store, "acme", kind=kind)
        clock.advance(1)
    enqueue_for(store, "other", 6)
    acme = [
        one.id for _ in range(12) for one in run_some(store, 1) if one.tenant == "acme"
    ]
    assert acme == made


def test_jobs_without_a_tenant_share_as_one(store):
    """As if they were of one more."""
    publish_pool(store)
    enqueue_for(store, "", 40)
    enqueue_for(store, "acme", 40)
    claims = [of_whom(run_some(store, want)) for want in WANTED]
    check_shares(claims[:9], ["", "acme"])


@pytest.mark.parametrize(("claims", "want"), [(8, 1), (1, 64)])
def test_who_comes_later_goes_by_turns_from_the_first_start(store, claims, want):
    """Nothing is owed for the time before, to neither: also after large claims."""
    publish_pool(store)
    enqueue_for(store, "early", 80)
    assert all(len(run_some(store, want)) == want for _ in range(claims))
    enqueue_for(store, "late", 16)
    later = [of_whom(run_some(store, 1)) for _ in range(20)]
    check_shares(later, ["early", "late"])
    assert later[0] + later[1] + later[2] >= Counter(early=1, late=1)


def test_who_was_away_is_owed_nothing(store):
    """However much the others have begun meanwhile."""
    publish_pool(store)
    enqueue_for(store, "steady", 80)
    enqueue_for(store, "guest", 5)
    assert of_whom(run_some(store, 10)) == {"steady": 5, "guest": 5}
    assert of_whom(run_some(store, 40)) == {"steady": 40}
    enqueue_for(store, "guest", 30)
    claims = [of_whom(run_some(store, want)) for want in (1, 2, 1, 4, 3, 9, 8)]
    check_shares(claims, ["steady", "guest"])


def test_a_weight_is_a_share(store):
    """Three times the weight, three times the starts, and it can be changed."""
    publish_pool(store, tenants={"big": 3.0, "small": 1.0})
    for who in ("big", "small", "other"):
        enqueue_for(store, who, 100)
    got = of_whom(one for _ in range(10) for one in run_some(store, 10))
    for who, due in (("big", 60), ("small", 20), ("other", 20)):
        assert abs(got[who] - due) <= 3, got
    store.set_tenant(Tenant(name="small", weight=3.0))
    got = of_whom(one for _ in range(7) for one in run_some(store, 10))
    for who, due in (("big", 30), ("small", 30), ("other", 10)):
        assert abs(got[who] - due) <= 4, got


def test_a_pool_can_be_fair_by_kind(store):
    """Its kinds have the shares, and the weights, whosever jobs they are."""
    publish_pool(store, fair="kind", kinds={OTHER: 4.0})
    enqueue_for(store, "acme", 100, KIND)
    enqueue_for(store, "acme", 50, OTHER)
    enqueue_for(store, "zeta", 50, OTHER)
    got = Counter(one.kind for _ in range(10) for one in run_some(store, 10))
    assert abs(got[OTHER] - 80) <= 5, got


def test_a_pool_that_was_fair_by_tenant_is_fair_by_kind_from_the_first_claim(store):
    """Shares that its tenants had get nothing any more, and hold up nobody."""
    publish_pool(store)
    for number in range(150):
        enqueue_for(store, f"t{number}", 1, KIND)
    for kind in (KIND, KIND, OTHER):
        enqueue_for(store, "acme", 50, kind)
    run_some(store, 1)
    publish_pool(store, fair="kind", run_id="run-2")
    run_some(store, 1, run_id="run-1")
    got = Counter(one.kind for one in run_some(store, 8))
    assert got == {KIND: 4, OTHER: 4}


def test_a_turn_that_cannot_be_used_is_used_by_others_at_once(store):
    """By a cap, a pause, or since nothing waits: the slots are all in use."""
    publish_pool(
        store, Quota(name="one", concurrency=1, per="tenant"), needs={KIND: ["one"]}
    )
    enqueue_for(store, "capped", 50)
    enqueue_for(store, "free", 50, OTHER)
    enqueue_for(store, "few", 2, OTHER)
    held = begin(store, 20)
    assert of_whom(held) == {"capped": 1, "few": 2, "free": 17}
    store.settle([succeeded(one) for one in held])
    assert of_whom(run_some(store, 6)) == {"capped": 1, "free": 5}
    store.pause(tenant="free")
    assert of_whom(run_some(store, 6)) == {"capped": 1}


def test_who_was_blocked_is_owed_nothing(store):
    """When its cap is lifted, it goes by turns with the others."""
    cap = Quota(name="one", concurrency=1, per="tenant")
    publish_pool(store, cap, needs={KIND: ["one"]})
    enqueue_for(store, "capped", 60)
    enqueue_for(store, "free", 100, OTHER)
    assert of_whom(begin(store, 40)) == {"capped": 1, "free": 39}
    publish_pool(store)
    claims = [of_whom(run_some(store, want)) for want in (1, 2, 1, 4, 3, 9, 8)]
    check_shares(claims, ["capped", "free"])


def test_what_all_need_is_shared_as_the_slots_are(store):
    """Permits of a quota that tenants have in common go by turns, too."""
    publish_pool(store, Quota(name="api", concurrency=4), needs={KIND: ["api"]})
    enqueue_for(store, "flood", 100)
    enqueue_for(store, "small", 40)
    claims = []
    for _ in range(10):
        claims.append(of_whom(run_some(store, 9)))
        assert sum(claims[-1].values()) == 4
    check_shares(claims, ["flood", "small"])


def test_shares_are_within_a_priority(store):
    """A higher one goes first; what is left of its claim goes by turns."""
    publish_pool(store)
    enqueue_for(store, "flood", 120)
    enqueue_for(store, "small", 60)
    claims = []
    for _ in range(12):
        enqueue_for(store, "flood", 4, priority=5)
        found = run_some(store, 10)
        assert [one.priority for one in found].count(5) == 4
        claims.append(of_whom(one for one in found if not one.priority))
    check_shares(claims, ["flood", "small"])


def test_a_share_that_has_run_dry_leaves_its_turns_to_its_priority(store):
    """Not to a lower one, though as many of that were wanted."""
    publish_pool(store, tenants={"heavy": 3.0})
    enqueue_for(store, "low")
    enqueue_for(store, "light", 12, priority=1)
    enqueue_for(store, "heavy", 12, priority=1)
    assert of_whom(run_some(store, 20)) == {"heavy": 12, "light": 8}


def test_what_goes_back_unbegun_costs_its_share_nothing(store):
    """As a lease that was sent ahead and recalled; what did begin has cost one."""
    publish_pool(store)
    enqueue_for(store, "a", 20)
    enqueue_for(store, "b", 20)
    for _ in range(5):
        for back in [one for one in begin(store, 2) if one.tenant == "b"]:
            store.settle([handed_back(back)])
    assert of_whom(run_some(store, 1)) == {"b": 1}
    (first, second) = begin(store, 2)
    store.settle([snoozed(first), snoozed(second)])
    claims = [of_whom(run_some(store, 1)) for _ in range(20)]
    check_shares(claims, ["a", "b"])


def test_two_supervisors_take_turns_from_the_same_shares(store_factory):
    """What one has begun, the other knows."""
    stores = [store_factory(), store_factory()]
    for number, one in enumerate(stores, 1):
        publish_pool(one, run_id=f"run-{number}", host=f"host-{number}")
    enqueue_for(stores[0], "flood", 100)
    enqueue_for(stores[1], "small", 60)
    claims = [
        of_whom(run_some(stores[turn % 2], want, run_id=f"run-{turn % 2 + 1}"))
        for turn, want in enumerate(WANTED)
    ]
    check_shares(claims, ["flood", "small"])


def test_shares_hold_for_jobs_that_waited_before_the_pool_was_fair(store):
    """And after it no longer is, jobs are leased as they are due."""
    made = [enqueue_for(store, who, 30) for who in ("flood", "small")]
    publish_pool(store)
    claims = [of_whom(run_some(store, want)) for want in (4, 1, 9, 1, 7)]
    check_shares(claims, ["flood", "small"])
    publish_pool(store, fair="")
    left = [job for jobs in made for job in jobs]
    now = [one.id for one in run_some(store, 10)]
    assert now == sorted(now)
    assert set(now) < set(left[:30])


def test_stamped_jobs_share_with_others(store):
    """A client that knows that the pool is fair stamps their lanes."""
    publish_pool(store)
    store.enqueue([stamped(tenant="stamped")] * 40)
    enqueue_for(store, "plain", 40)
    claims = [of_whom(run_some(store, want)) for want in WANTED[:9]]
    check_shares(claims, ["stamped", "plain"])


def test_among_many_tenants_each_has_its_turn(store):
    """A flood of one does not keep 150 others waiting for more than their round."""
    publish_pool(store)
    enqueue_for(store, "flood", 300)
    names = [f"t{number}" for number in range(150)]
    store.enqueue([stamped(tenant=name) for name in names for _ in range(2)])
    first = of_whom(one for _ in range(5) for one in run_some(store, 32))
    assert all(first[name] for name in names), first
    assert first["flood"] <= 10
    second = of_whom(one for _ in range(5) for one in run_some(store, 32))
    assert all((first + second)[name] == 2 for name in names)


def test_a_pool_without_a_rule_is_as_it_was(store):
    """First in, first out, and no lanes."""
    publish_pool(store, fair="")
    enqueue_for(store, "flood", 30)
    enqueue_for(store, "small", 5)
    found = run_some(store, 30)
    assert of_whom(found) == {"flood": 30}
    assert not any(one.laned for one in found)


def test_who_comes_last_to_a_full_quota_has_its_turn(store, clock):
    """Of many that a quota in common holds back, not those go first who came first."""
    publish_pool(store, Quota(name="api", concurrency=2), needs={KIND: ["api"]})
    names = [f"t{number}" for number in range(30)]
    for name in names:
        enqueue_for(store, name, 4)
        clock.advance(1)
    held = begin(store, 2)
    for last in ("", "late"):
        enqueue_for(store, last, 2 * bool(last))
        for _ in range(10):
            assert begin(store, 2) == []
    begun = []
    while held:
        begun += held
        store.settle([succeeded(one) for one in held])
        held = begin(store, 2)
        for _ in range(4):  # Others ask meanwhile, in vain.
            assert begin(store, 1) == []
    assert len(begun) == 122
    of_all = [one.tenant for one in begun[:40]]
    assert "late" in of_all
    assert len(set(of_all)) > 20
