"""What is in force: what living runs publish, where they differ, and what is set."""

import pytest

from jobpool.core.formats import QUOTAS
from jobpool.core.rules.quotas.definition import Need
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.rules import Override
from jobpool.errors import FeatureHeldBack, UsageError
from support.store import quotas
from support.store.quotas import KIND, OTHER, enqueue, ids, publish, quota, tenant
from support.store.storing import (
    begin_run,
    handed_back,
    lease,
    lease_one,
    new_job,
    succeeded,
)

ENGINES = quotas.ENGINES


def settle(store, leases):
    store.settle([handed_back(one) for one in leases])


def caps(store):
    return {row.name: row.quota and row.quota.concurrency for row in store.quotas()}


def test_a_run_that_publishes_again_changes_its_quotas(store):
    """At once, and what waited for the former cap is leased."""
    publish(store, quota(concurrency=1))
    enqueue(store, 5)
    assert len(lease(store)) == 1
    assert lease(store) == ()
    publish(store, quota(concurrency=3))
    assert len(lease(store)) == 2
    publish(store, quota(concurrency=2))
    assert lease(store) == ()


def test_the_stricter_of_two_definitions_holds_and_both_hosts_are_named(store_factory):
    """Until one of the runs has ended."""
    store = store_factory()
    publish(store, quota(concurrency=5), host="a")
    publish(store, quota(concurrency=2), run_id="run-2", host="b")
    enqueue(store, 9)
    granted = lease(store)
    assert len(granted) == 2
    (row,) = store.quotas()
    assert row.quota.concurrency == 2
    assert "host a" in row.differing
    assert "host b" in row.differing
    assert store.differing_quotas() == {row.name: row.differing}
    store.end_run("run-2")
    assert len(lease(store)) == 3
    (row,) = store.quotas()
    assert row.differing is None
    assert store.differing_quotas() == {}


def test_a_kind_needs_what_any_run_says_it_needs(store_factory):
    """At the higher cost: a deployment is not to loosen a limit while it lasts."""
    store = store_factory()
    publish(store, quota(concurrency=4), quota("db", concurrency=9))
    publish(
        store,
        quota(concurrency=4),
        quota("db", concurrency=9),
        needs={KIND: [Need("stripe", 2), "db"]},
        run_id="run-2",
    )
    enqueue(store, 9)
    assert len(lease(store)) == 2
    assert {row.name: row.used for row in store.quotas()} == {"stripe": 4, "db": 2}


def test_quotas_of_a_run_that_has_ended_hold_nothing_back(store_factory):
    """Its kinds are leased as if there had been none."""
    store = store_factory()
    publish(store, quota(concurrency=1), run_id="run-2")
    begin_run(store)
    enqueue(store, 3)
    (granted,) = lease(store)
    assert lease(store) == ()
    store.end_run("run-2")
    assert len(lease(store)) == 2
    assert store.quotas() == []
    settle(store, [granted])
    assert len(lease(store)) == 1


def test_a_kind_that_comes_under_a_quota_is_held_to_it_with_what_waits_already(store):
    """What was leased before counts from its next lease on."""
    begin_run(store)
    store.enqueue([new_job()] * 5)
    assert len(lease(store, limit=2)) == 2
    publish(store, quota(concurrency=1))
    assert len(lease(store)) == 1
    assert lease(store) == ()


def test_what_a_quota_counts_by_may_change(store):
    """Jobs that wait are counted anew, by their arguments."""
    publish(store, quota(concurrency=1, per="args.vendor"))
    enqueue(store, 2, values={"vendor": "a"}, payload=b'{"vendor":"a","shop":"x"}')
    enqueue(store, 1, values={"vendor": "b"}, payload=b'{"vendor":"b","shop":"x"}')
    granted = lease(store)
    assert len(granted) == 2
    store.settle([handed_back(one) for one in granted])
    publish(store, quota(concurrency=1, per="args.shop"))
    assert len(lease(store)) == 1
    assert [row.value for row in store.buckets("stripe") if row.used] == ["x"]


def test_where_runs_count_by_different_things_the_newest_application_says(
    store_factory, clock
):
    """An older host that restarts does not turn it back."""
    store = store_factory()
    publish(store, quota(concurrency=1, per="args.vendor"), app_version="1")
    clock.advance(1)
    publish(
        store, quota(concurrency=1, per="args.shop"), run_id="run-2", app_version="2"
    )
    store.enqueue(
        [
            new_job(payload=b'{"vendor":"a","shop":"x"}'),
            new_job(payload=b'{"vendor":"b","shop":"x"}'),
        ]
    )
    assert len(lease(store)) == 1


def test_numbers_that_are_set_come_before_those_that_are_published(store, clock):
    """For as long as was said."""
    publish(store, quota(concurrency=3))
    enqueue(store, 9)
    assert store.set_quota(Override(quota="stripe", concurrency=1, who="ann"), for_s=60)
    granted = lease(store)
    assert len(granted) == 1
    (row,) = store.quotas()
    assert (row.quota.concurrency, row.override.who) == (1, "ann")
    assert row.override.until_ms == clock.utc_ms() + 60_000
    clock.advance(59)
    assert lease(store) == ()
    clock.advance(1)
    assert len(lease(store)) == 2
    assert store.quotas()[0].override is None


def test_a_number_that_is_not_set_stays_as_it_is(store):
    """Of what is published, and of what was set before."""
    publish(store, quota(rate="5/s", burst=7, concurrency=3))
    assert store.set_quota(Override(quota="stripe", concurrency=2))
    assert store.set_quota(Override(quota="stripe", burst=4))
    (row,) = store.quotas()
    assert (row.quota.rate, row.quota.burst, row.quota.concurrency) == (
        Rate(5.0, 1.0),
        4,
        2,
    )


@pytest.mark.parametrize(("before_s", "after_s"), [(None, 60), (60, None), (60, 90)])
def test_a_number_that_was_set_keeps_its_end_or_is_named_again(
    store, before_s, after_s
):
    """Else a rate would be let go, or a cap kept, because another number was set."""
    publish(store, quota(rate="100/s", concurrency=3))
    store.set_quota(Override(quota="stripe", rate=Rate(1.0, 1.0)), for_s=before_s)
    (before,) = store.quotas()
    with pytest.raises(UsageError, match="its rate was set with another end"):
        store.set_quota(Override(quota="stripe", concurrency=2), for_s=after_s)
    assert store.quotas() == [before]
    both = Override(quota="stripe", rate=Rate(1.0, 1.0), concurrency=2)
    assert store.set_quota(both, for_s=after_s)


def test_setting_what_is_set_changes_nothing(store):
    """But another end does."""
    publish(store, quota(concurrency=3))
    assert store.set_quota(Override(quota="stripe", concurrency=2))
    assert not store.set_quota(Override(quota="stripe", concurrency=2))
    assert store.set_quota(Override(quota="stripe", concurrency=2), for_s=5)


@pytest.mark.parametrize(
    ("override", "for_s"),
    [
        (Override(quota="stripe"), None),
        (Override(quota="stripe", concurrency=0), None),
        (Override(quota="stripe", burst=-1), None),
        (Override(quota="no quota", concurrency=1), None),
        (Override(quota="kind:", concurrency=1), None),
        (Override(quota="kind:\udcff", concurrency=1), None),
        (Override(quota="kind:" + "x" * 201, concurrency=1), None),
        (Override(quota="stripe", concurrency=1), 0),
    ],
)
def test_what_cannot_be_set_is_refused(store, override, for_s):
    """And nothing was changed."""
    publish(store, quota(concurrency=3))
    with pytest.raises(UsageError):
        store.set_quota(override, for_s=for_s)
    assert caps(store) == {"stripe": 3}


def test_a_kind_may_be_given_a_cap_at_run_time(store):
    """Though none was declared."""
    begin_run(store)
    store.enqueue([new_job()] * 3)
    assert store.set_quota(Override(quota=f"kind:{KIND}", concurrency=1))
    assert len(lease(store)) == 1
    assert lease(store) == ()
    assert store.reset_quota(f"kind:{KIND}")
    assert len(lease(store)) == 2


def test_a_reset_undoes_what_was_set_and_opens_what_is_blocked(store):
    """Permits that are held stay so."""
    publish(store, quota(concurrency=2, rate="1/h", burst=2))
    enqueue(store, 9)
    store.set_quota(Override(quota="stripe", concurrency=1))
    assert len(lease(store)) == 1
    assert store.reset_quota("stripe")
    assert len(lease(store)) == 1
    assert lease(store) == ()
    assert not store.reset_quota("other")


def test_a_cap_below_what_is_held_takes_nothing_away(store):
    """It holds once enough of them are returned."""
    publish(store, quota(concurrency=3))
    enqueue(store, 9)
    granted = lease(store)
    store.set_quota(Override(quota="stripe", concurrency=1))
    store.settle([succeeded(one) for one in granted[:2]])
    assert lease(store) == ()
    store.settle([succeeded(granted[2])])
    assert len(lease(store)) == 1


def test_a_cost_over_a_cap_that_has_shrunk_counts_as_all_of_it(store):
    """Else the job would wait for ever."""
    publish(store, quota(concurrency=5), needs={KIND: [Need("stripe", 4)]})
    enqueue(store, 2)
    store.set_quota(Override(quota="stripe", concurrency=2))
    granted = lease(store)
    assert len(granted) == 1
    assert store.buckets("stripe")[0].used == 2
    store.settle([succeeded(granted[0])])
    assert len(lease(store)) == 1


def test_tenants_have_caps_of_their_own_or_that_of_all_others(store):
    """As published; jobs without a tenant have none."""
    publish(
        store,
        needs={},
        tenants=[tenant("*", concurrency=1), tenant("acme", concurrency=2)],
    )
    store.enqueue([new_job(tenant="acme")] * 3)
    store.enqueue([new_job(tenant="small")] * 3)
    store.enqueue([new_job()] * 3)
    held = [job.tenant for job in map(store.get, ids(lease(store)))]
    assert [held.count(name) for name in ("acme", "small", None)] == [2, 1, 3]


def test_a_tenants_rule_is_set_and_removed_at_run_time(store):
    """Over what is published."""
    publish(store, needs={}, tenants=[tenant("*", concurrency=1)])
    store.enqueue([new_job(tenant="acme")] * 9)
    assert len(lease(store)) == 1
    assert store.set_tenant(tenant("acme", concurrency=3), who="ann")
    assert not store.set_tenant(tenant("acme", concurrency=3))
    assert len(lease(store)) == 2
    rows = {row.name: row for row in store.tenants()}
    assert (rows["acme"].is_set, rows["acme"].who, rows["acme"].used) == (
        True,
        "ann",
        3,
    )
    assert not rows["*"].is_set
    assert store.remove_tenant("acme")
    assert not store.remove_tenant("acme")
    assert lease(store) == ()


@pytest.mark.parametrize("rule", [tenant("acme"), tenant("", concurrency=1)])
def test_a_tenants_rule_that_says_nothing_is_refused(store, rule):
    """And so is one of nobody."""
    with pytest.raises(UsageError):
        store.set_tenant(rule)
    assert store.tenants() == []


def test_until_older_code_is_gone_no_job_with_quotas_is_leased(store_factory):
    """It would lease past them; kinds without are leased as ever."""
    store = store_factory()
    begin_run(store, "old", format=QUOTAS - 1)
    publish(store, quota(concurrency=1))
    enqueue(store, 2)
    (plain,) = store.enqueue([new_job(OTHER)])
    assert ids(lease(store)) == [plain.id]
    assert store.formats().wanted == QUOTAS
    store.end_run("old")
    store.grant_format()
    assert len(lease(store)) == 1


def test_once_quotas_are_in_use_older_code_gets_nothing(store_factory):
    """And is told so."""
    store = store_factory()
    publish(store, quota(concurrency=1))
    assert store.formats().least == QUOTAS
    with pytest.raises(Exception, match="too old"):
        begin_run(store, "old", format=QUOTAS - 1)


def test_without_quotas_older_code_goes_on(store_factory):
    """One can still go back to the release before."""
    store = store_factory()
    publish(store, needs={KIND: []})
    publish(store, quota("nobody", concurrency=1), needs={})
    assert store.formats().wanted < QUOTAS


def test_a_rule_of_a_tenant_waits_for_older_code(store_factory):
    """Nothing is changed meanwhile."""
    store = store_factory()
    begin_run(store, "old", format=QUOTAS - 1)
    begin_run(store)
    with pytest.raises(FeatureHeldBack, match="quotas wait for"):
        store.set_tenant(tenant("acme", concurrency=1))
    with pytest.raises(FeatureHeldBack):
        store.pause(tenant="acme")
    store.enqueue([new_job(tenant="acme")])
    lease_one(store)
