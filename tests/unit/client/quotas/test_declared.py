"""Quotas that an application's code declares, and what its handlers need of them."""

import re

import pytest

import jobpool
from jobpool.core.rules.quotas.definition import Need, Quota
from jobpool.core.rules.quotas.rate import Rate
from jobpool.errors import ConfigError


@pytest.fixture
def jobs():
    return jobpool.JobPool("memory:")


def test_a_quota_is_reported_as_it_was_declared(jobs):
    jobs.quota("stripe", rate="10/s", burst=20, concurrency=8)
    jobs.quota("vendor", rate="100/m", per="args.vendor_id", wait="1m")
    jobs.quota("gpu", concurrency=2, scope="host", throttle_max=60)
    assert jobs.declared_quotas() == (
        Quota(name="stripe", rate=Rate(10, 1), burst=20, concurrency=8),
        Quota(name="vendor", rate=Rate(100, 60), per="args.vendor_id", wait_s=60),
        Quota(name="gpu", concurrency=2, host_only=True, throttle_max_s=60),
    )


def test_a_handler_is_reported_with_what_its_jobs_need(jobs):
    fair = jobs.quota("fair-use", concurrency=5, per="tenant")
    vendor = jobs.quota("vendor", rate="100/m", burst=5, per="args.vendor_id")

    @jobs.job("io", kind="shop.charge", quotas=[fair, vendor.cost(2)], concurrency=20)
    def charge(vendor_id: str) -> None: ...

    @jobs.job("io", kind="plain")
    def plain() -> None: ...

    charged, plainly = jobs.handler_specs()
    assert charged.needs == (Need("fair-use", 1), Need("vendor", 2))
    assert charged.concurrency == 20
    assert plainly.needs == ()
    assert plainly.concurrency is None


def test_a_quota_may_be_declared_again_with_the_same_values(jobs):
    """As when a script is also imported as a module."""
    one = jobs.quota("stripe", rate="60/m")
    assert jobs.quota("stripe", rate="60/m") is one


def test_a_name_is_not_taken_twice_with_other_values(jobs):
    jobs.quota("stripe", rate="10/s")
    with pytest.raises(ConfigError, match=r"twice, with rate: 10/s and 5/s"):
        jobs.quota("stripe", rate="5/s")
    assert jobs.declared_quotas() == (Quota(name="stripe", rate=Rate(10, 1)),)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rate": "fast"}, "quota 'q': rate: 'fast' is not a rate"),
        ({"rate": 10}, "quota 'q': rate: '10' is not a rate"),
        ({"concurrency": 0}, "concurrency=0 is out of range"),
        ({"concurrency": True}, "concurrency=True is out of range"),
        ({"burst": 2}, "burst 2 without a rate"),
        ({"rate": "1/s", "burst": 0}, "burst=0 is out of range"),
        ({"per": "vendor_id"}, "per='vendor_id' cannot be counted by"),
        ({"per": 5}, "quota 'q': per: expected text, got int"),
        ({"scope": "galaxy"}, "scope='galaxy' is unknown"),
        ({"scope": "host", "rate": "1/s"}, 'scope="host" has no rate'),
        ({"scope": "host", "per": "tenant"}, 'scope="host" together with per'),
        ({"wait": "soon"}, "quota 'q': wait"),
        ({"throttle_max": 0}, "quota 'q': throttle_max: 0 is too short"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(jobs, options, expected):
    with pytest.raises(ConfigError, match=re.escape(expected)):
        jobs.quota("q", **options)
    assert jobs.declared_quotas() == ()


@pytest.mark.parametrize("name", ["", "a b", "kind:x", "tenant", "x" * 101, 5])
def test_a_wrong_name_is_refused(jobs, name):
    with pytest.raises(ConfigError, match="no name for a quota"):
        jobs.quota(name, rate="1/s")


def refusal(jobs, message, *, arguments="a: int", **options):
    """Assert that a decorator is refused, and that nothing was registered."""
    scope = {}
    exec(f"def handler({arguments}): ...", scope)  # noqa: S102 - our own text
    with pytest.raises(ConfigError, match=re.escape(message)):
        jobs.job("io", kind="shop.charge", **options)(scope["handler"])
    assert jobs.handler_specs() == ()


def test_a_quota_that_can_never_give_so_much_is_refused(jobs):
    capped = jobs.quota("capped", concurrency=2)
    slow = jobs.quota("slow", rate="1/m")
    refusal(
        jobs,
        "a cost of 3 of quota 'capped' could never be had: its concurrency is 2",
        quotas=[capped.cost(3)],
    )
    refusal(jobs, "its burst is 1", quotas=[slow.cost(2)])
    refusal(jobs, "a cost of 0 is out of range", quotas=[capped.cost(0)])
    refusal(jobs, "a cost of 1.5 is out of range", quotas=[capped.cost(1.5)])


def test_what_is_no_quota_of_this_application_is_refused(jobs):
    other = jobpool.JobPool("memory:").quota("theirs", rate="1/s")
    own = jobs.quota("own", rate="1/s")
    refusal(jobs, "'theirs' belongs to another JobPool", quotas=[other])
    refusal(jobs, "'own' is named twice", quotas=[own, own.cost(1)])
    refusal(jobs, "declares no such quota (it declares own)", quotas=["stripe"])
    refusal(jobs, "give the object that jobs.quota(...)", quotas=["own"])
    refusal(jobs, "expected a list of quotas, got Quota", quotas=own)
    refusal(jobs, "expected what jobs.quota(...) returns", quotas=[5])


@pytest.mark.parametrize("most", [0, -1, True, 2.5, "2"])
def test_a_kinds_own_cap_is_at_least_one(jobs, most):
    refusal(jobs, "concurrency=", concurrency=most)


def test_a_quota_counts_by_arguments_that_the_handler_has(jobs):
    vendor = jobs.quota("vendor", rate="1/s", per="args.vendor_id")
    refusal(
        jobs,
        "'vendor' counts by args.vendor_id, which shop.charge does not have (it has a)",
        quotas=[vendor],
    )
    refusal(jobs, "(it has no arguments)", arguments="", quotas=[vendor])
    refusal(jobs, "does not have", arguments="*vendor_id", quotas=[vendor])
    refusal(jobs, "does not have", arguments="**vendor_id", quotas=[vendor])

    @jobs.job("io", kind="k", quotas=[vendor])
    def whatever(**more: str) -> None: ...

    assert jobs.handler_specs()


def test_a_default_that_cannot_be_counted_by_is_refused(jobs):
    vendor = jobs.quota("vendor", rate="1/s", per="args.a")
    refusal(
        jobs,
        "the default of 'a' in shop.charge cannot be counted by",
        arguments="a=1.5",
        quotas=[vendor],
    )
    refusal(jobs, "cannot be counted by", arguments="a=print", quotas=[vendor])


def test_a_path_below_an_argument_leads_to_something_by_its_annotations(jobs):
    """Known once the annotations can be resolved: when the application is loaded."""

    @jobs.job(
        "io", kind="k", quotas=[jobs.quota("by-list", rate="1/s", per="args.ids")]
    )
    def listed(ids: list[int]) -> None: ...

    with pytest.raises(ConfigError, match=r"'by-list' counts by args\.ids, but by"):
        _ = listed.spec

    @jobs.job(
        "io", kind="m", quotas=[jobs.quota("deep", rate="1/s", per="args.ids.one")]
    )
    def mapped(ids: dict[str, int]) -> None: ...

    assert mapped.spec.needs == (Need("deep"),)
