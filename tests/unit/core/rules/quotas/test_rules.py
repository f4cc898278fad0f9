"""What is in force: of what runs publish, and of what operators have set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.quotas.definition import (
    TENANT,
    Limits,
    Need,
    Quota,
    Tenant,
    own_cap,
)
from jobpool.core.rules.quotas.gcra import pace
from jobpool.core.rules.quotas.lanes import bucket_id
from jobpool.core.rules.quotas.merging import shown
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.rules import (
    FOREVER_MS,
    Limit,
    Override,
    Pause,
    Published,
    TenantOverride,
    Use,
    rules,
)
from jobpool.core.rules.quotas.shares import KindRule, PoolRule

NOW_MS = 1_800_000_000_000
STRIPE = Quota(name="stripe", rate=Rate(10, 1), burst=20, concurrency=8)
VENDOR = Quota(name="vendor", rate=Rate(100, 60), per="args.order.vendor")
FAIR = Quota(name="fair", concurrency=5, per=TENANT)
NEEDS = {"pay": (Need("stripe"), Need("vendor", 2)), "mail": (Need("fair"),)}


def run(*quotas, label="a", since=0, needs=NEEDS, tenants=()):
    limits = Limits(quotas=quotas, tenants=tuple(tenants))
    return Published(
        run_id=f"run-{label}",
        label=label,
        app_since_ms=since,
        limits=limits,
        needs=needs,
    )


def compiled(*published, now_ms=NOW_MS, **more):
    return rules(published, now_ms=now_ms, **more)


def test_without_anything_nothing_is_held_back():
    found = compiled(Published(run_id="r", label="a"))
    assert found.is_empty
    assert not found.is_laned("io", "pay")
    assert found.uses("pay", "acme", {}) == ()
    assert found.limit("stripe", "") == Limit()


def test_a_kind_is_leased_from_lanes_if_it_needs_a_quota():
    found = compiled(run(STRIPE, VENDOR, FAIR), version=7)
    assert not found.is_empty
    assert found.version == 7
    assert found.is_laned("io", "pay")
    assert not found.is_laned("io", "report")


def test_a_job_of_a_kinds_former_name_counts_as_well():
    """It runs the same handler."""
    limits = Limits(quotas=(STRIPE, VENDOR, FAIR), aliases={"charge": "pay"})
    found = compiled(Published(run_id="r", label="a", limits=limits, needs=NEEDS))
    values = {"order.vendor": "7"}
    assert found.uses("charge", None, values) == found.uses("pay", None, values) != ()


def test_a_job_uses_a_bucket_for_each_value_that_it_counts_by():
    """In order of buckets, in which their locks are taken."""
    found = compiled(run(STRIPE, VENDOR, FAIR))
    values = {"order.vendor": "7"}
    uses = [
        Use(bucket_id("stripe", ""), "stripe", "", 1),
        Use(bucket_id("vendor", "7"), "vendor", "7", 2),
    ]
    assert found.uses("pay", None, values) == tuple(sorted(uses))
    assert found.counted_paths("pay") == ("order.vendor",)
    ((_, _, value, _),) = found.uses("mail", "acme", {})
    assert value == "acme"


def test_without_a_value_all_share_one_bucket():
    found = compiled(run(STRIPE, VENDOR, FAIR))
    assert [use.value for use in found.uses("mail", None, {})] == [""]
    assert {use.value for use in found.uses("pay", None, {})} == {""}


def test_a_kinds_own_cap_is_a_quota_of_its_own():
    quota, need = own_cap("shop.charge", 20)
    found = compiled(run(quota, needs={"shop.charge": (need,)}))
    assert found.limit("kind:shop.charge", "") == Limit(concurrency=20)
    assert [use.quota for use in found.uses("shop.charge", None, {})] == [
        "kind:shop.charge"
    ]


def test_what_each_host_counts_alone_is_not_the_stores():
    quota = Quota(name="gpu", concurrency=1, host_only=True)
    found = compiled(run(quota, needs={"train": (Need("gpu"),)}))
    assert not found.is_laned("io", "train")
    assert found.is_empty


def test_a_quota_that_nobody_publishes_any_more_holds_nothing_back():
    assert compiled(run(STRIPE, needs={"pay": (Need("gone"),)})).is_empty


def test_where_hosts_differ_the_stricter_numbers_hold_and_both_are_named():
    other = Quota(name="stripe", rate=Rate(300, 60), burst=30, concurrency=4)
    found = compiled(run(STRIPE), run(other, label="b", since=1))
    assert found.limit("stripe", "") == Limit(
        concurrency=4, pace=pace(Rate(300, 60), 20)
    )
    assert found.differing == (
        (
            "quota stripe: a says 10/s, burst 20, at most 8 at once, b says 300/m, "
            "burst 30, at most 4 at once; of each the stricter number holds"
        ),
    )


def test_hosts_that_agree_are_not_named():
    """Not even if one of them names the default."""
    plain = Quota(name="x", rate=Rate(10, 1))
    named = Quota(name="x", rate=Rate(10, 1), burst=10, wait_s=1)
    assert compiled(run(plain), run(named, label="b")).differing == ()


def test_a_number_that_only_one_host_has_holds():
    capped, paced = Quota(name="x", concurrency=3), Quota(name="x", rate=Rate(1, 1))
    for order in ((capped, paced), (paced, capped)):
        published = [run(one, label=str(at)) for at, one in enumerate(order)]
        assert compiled(*published).limit("x", "") == Limit(
            concurrency=3, pace=pace(Rate(1, 1), 1)
        )


def test_the_newest_application_says_what_a_quota_counts_by():
    """Whoever comes first in the list; a job is stamped again."""
    older = Quota(name="vendor", concurrency=1, per="args.vendor")
    newer = Quota(name="vendor", concurrency=1, per="args.account", wait_s=9)
    needs = {"pay": (Need("vendor"),)}
    runs = [
        run(newer, label="b", since=2, needs=needs),
        run(older, label="a", since=1, needs=needs),
    ]
    found = compiled(*runs)
    assert found.counted_paths("pay") == ("account",)
    assert found.quotas["vendor"].wait_s == 9
    assert "what the newer application counts by" in found.differing[0]


def test_a_kind_needs_what_any_host_says_at_the_highest_cost():
    one = run(STRIPE, VENDOR, needs={"pay": (Need("stripe", 3), Need("vendor"))})
    two = run(STRIPE, FAIR, label="b", needs={"pay": (Need("stripe", 2), Need("fair"))})
    found = compiled(one, two)
    assert found.needs_of("pay") == (Need("fair"), Need("stripe", 3), Need("vendor"))


QUOTAS = st.builds(
    Quota,
    name=st.just("x"),
    rate=st.none() | st.builds(Rate, st.integers(1, 9), st.sampled_from([1, 60])),
    burst=st.none() | st.integers(1, 9),
    concurrency=st.none() | st.integers(1, 9),
    per=st.sampled_from([None, TENANT]),
).filter(lambda one: one.rate is not None or one.burst is None)


@given(st.lists(QUOTAS, min_size=1, max_size=5))
def test_nothing_that_is_in_force_is_looser_than_what_any_host_says(quotas):
    found = compiled(
        *(run(one, label=f"h{at}", since=at) for at, one in enumerate(quotas))
    )
    limit = found.limit("x", "")
    caps = [one.concurrency for one in quotas if one.concurrency is not None]
    rates = [one for one in quotas if one.rate is not None]
    assert limit.concurrency == min(caps, default=None)
    assert (limit.pace is None) == (not rates)
    if limit.pace is not None:
        in_force = found.quotas["x"]
        assert in_force.rate.per_second == min(one.rate.per_second for one in rates)
        assert limit.pace.burst == min(one.burst_in_force for one in rates)
    assert found.quotas["x"].per == quotas[-1].per
    assert bool(found.differing) >= (len({shown(one) for one in quotas}) > 1)


def test_what_is_set_takes_precedence_even_if_it_is_looser():
    found = compiled(run(STRIPE), overrides=[Override(quota="stripe", concurrency=50)])
    assert found.limit("stripe", "") == Limit(
        concurrency=50, pace=pace(Rate(10, 1), 20)
    )
    assert found.quotas["stripe"].source == "set"


def test_what_is_set_for_a_time_holds_until_then():
    """And the rules say when they are to be compiled again."""
    slower = Override(quota="stripe", rate=Rate(5, 1), until_ms=NOW_MS + 1)
    found = compiled(run(STRIPE), overrides=[slower])
    assert found.limit("stripe", "").pace == pace(Rate(5, 1), 20)
    assert found.until_ms == NOW_MS + 1
    later = compiled(run(STRIPE), overrides=[slower], now_ms=NOW_MS + 1)
    assert later.limit("stripe", "").pace == pace(Rate(10, 1), 20)
    assert later.until_ms is None


def test_a_cap_can_be_set_for_a_kind_that_has_none():
    found = compiled(
        run(needs={}), overrides=[Override(quota="kind:pay", concurrency=2)]
    )
    assert found.is_laned("io", "pay")
    assert found.limit("kind:pay", "") == Limit(concurrency=2)


def test_a_rule_of_tenants_concerns_every_kind():
    """But not a job without a tenant."""
    found = compiled(run(needs={}, tenants=[Tenant(name="*", concurrency=3)]))
    assert found.is_laned("io", "whatever")
    assert found.uses("whatever", "acme", {}) == (
        Use(bucket_id(TENANT, "acme"), TENANT, "acme", 1),
    )
    assert found.uses("whatever", None, {}) == ()
    assert found.limit(TENANT, "acme") == Limit(concurrency=3)


def test_a_tenant_has_its_own_numbers_and_everybodys_for_the_rest():
    tenants = [
        Tenant(name="*", concurrency=3, rate=Rate(10, 1), burst=5),
        Tenant(name="acme", concurrency=9),
        Tenant(name="evil", rate=Rate(1, 1)),
    ]
    found = compiled(run(tenants=tenants))
    assert found.limit(TENANT, "acme") == Limit(
        concurrency=9, pace=pace(Rate(10, 1), 5)
    )
    assert found.limit(TENANT, "evil") == Limit(concurrency=3, pace=pace(Rate(1, 1)))


def test_what_is_set_for_a_tenant_takes_precedence():
    tenants = [Tenant(name="acme", concurrency=9, rate=Rate(1, 1))]
    over = TenantOverride(tenant=Tenant(name="acme", concurrency=20))
    found = compiled(run(tenants=tenants), tenants=[over])
    assert found.limit(TENANT, "acme") == Limit(concurrency=20, pace=pace(Rate(1, 1)))


def test_of_tenants_too_the_stricter_numbers_hold_and_both_hosts_are_named():
    found = compiled(
        run(tenants=[Tenant(name="*", concurrency=3)]),
        run(label="b", since=1, tenants=[Tenant(name="*", concurrency=2)]),
    )
    assert found.limit(TENANT, "acme").concurrency == 2
    assert found.differing == (
        (
            "tenant *: a says at most 3 at once, b says at most 2 at once; of each the "
            "stricter number holds"
        ),
    )


def test_a_weight_alone_holds_nothing_back():
    assert compiled(run(needs={}, tenants=[Tenant(name="*", weight=2)])).is_empty


@pytest.mark.parametrize(
    ("until_ms", "closed"), [(None, FOREVER_MS), (NOW_MS + 9, NOW_MS + 9)]
)
def test_of_a_paused_quota_nothing_begins(until_ms, closed):
    pause = Pause(what="quota", name="stripe", until_ms=until_ms, note="they asked")
    found = compiled(run(STRIPE), pauses=[pause])
    limit = found.limit("stripe", "")
    assert limit.closed_until_ms == closed
    assert limit.reason == "quota stripe is paused: they asked"
    assert found.until_ms == until_ms


def test_of_a_paused_tenant_nothing_begins_of_any_kind():
    """Without any other rule, and other tenants are not concerned."""
    found = compiled(run(needs={}), pauses=[Pause(what=TENANT, name="acme")])
    assert found.is_laned("io", "whatever")
    ((bucket, quota, value, _),) = found.uses("whatever", "acme", {})
    assert (bucket, quota, value) == (bucket_id(TENANT, "acme"), TENANT, "acme")
    assert found.limit(quota, value).closed_until_ms == FOREVER_MS
    assert found.uses("whatever", "other", {}) == ()
    assert found.limit(TENANT, "other") == Limit()


def test_pauses_that_are_over_and_those_of_kinds_and_pools_say_nothing_here():
    pauses = [
        Pause(what=TENANT, name="acme", until_ms=NOW_MS),
        Pause(what="kind", name="pay"),
        Pause(what="pool", name="io"),
    ]
    found = compiled(run(needs={}), pauses=pauses)
    assert found.is_empty
    assert found.until_ms is None


def test_the_first_end_of_anything_that_was_set_ends_the_rules():
    found = compiled(
        run(STRIPE),
        overrides=[Override(quota="stripe", burst=3, until_ms=NOW_MS + 50)],
        pauses=[Pause(what=TENANT, name="acme", until_ms=NOW_MS + 20)],
    )
    assert found.until_ms == NOW_MS + 20


def test_in_a_fair_or_aged_pool_all_kinds_are_laned():
    """What is said of a pool is as the newest application has it; others are named."""
    fair = PoolRule(name="io", fair="tenant", aging_s=60.0)
    older = Limits(pools=(PoolRule(name="io", fair="kind"),))
    newer = Limits(pools=(fair, PoolRule(name="cpu")))
    runs = [
        Published(run_id=label, label=label, app_since_ms=since, limits=limits)
        for label, since, limits in (("new", 2, newer), ("old", 1, older))
    ]
    found = compiled(*runs)
    assert not found.is_empty
    assert found.pools == {"io": fair}
    assert found.is_laned("io", "whatever")
    assert not found.is_laned("cpu", "whatever")
    assert found.uses("whatever", "acme", {}) == ()
    (said,) = found.differing
    assert said.startswith("pool io: old says fair by kind, new says fair by tenant")


def test_weights_are_of_those_who_have_shares():
    """A tenant's is its own, or everybody's; jobs without a tenant count as one."""
    limits = Limits(
        pools=(PoolRule(name="io", fair="tenant"), PoolRule(name="cpu", fair="kind")),
        kinds=(KindRule(kind="k", weight=4.0),),
        tenants=(Tenant(name="acme", weight=3.0), Tenant(name="*", weight=0.5)),
    )
    found = compiled(Published(run_id="r", label="r", limits=limits))
    assert [found.weight("io", "k", who) for who in ("acme", "b", None)] == [3, 0.5, 1]
    assert [found.weight("cpu", kind, "acme") for kind in ("k", "other")] == [4, 1]
    assert found.who("io", "k", None) == ""
    assert found.who("io", "k", "acme") == "acme"
    assert found.who("cpu", "k", "acme") == "k"
