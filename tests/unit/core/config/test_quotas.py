"""Quotas as configured, and what a supervisor publishes of them."""

import pytest

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.config.quotas import needs_of, published_limits, remarks
from jobpool.core.config.settings import QuotaSettings
from jobpool.core.rules.quotas.definition import Need, Quota, Tenant
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.shares import KindRule, PoolRule
from jobpool.errors import ConfigError
from support.configuring import build, toml

STRIPE = Quota(name="stripe", rate=Rate(10, 1), burst=20, concurrency=8, wait_s=2)
CHARGE = HandlerSpec(
    kind="shop.charge", pool="io", needs=(Need("stripe", 2),), concurrency=20
)
MAIL = HandlerSpec(kind="shop.mail", pool="io")
CAP = Quota(name="cap", concurrency=3)
REPORT = AppReport(quotas=(STRIPE, CAP), handlers=(CHARGE, MAIL))


def settings(text=""):
    return build(files=toml(text)).settings


def published(text="", report=REPORT):
    """Return the published quotas by name."""
    return {one.name: one for one in published_limits(settings(text), report).quotas}


def test_values_have_their_origin():
    found = build(files=toml('[quotas.stripe]\nrate = "5/s"\n[tenants."*"]\nweight=2'))
    assert found.settings.quotas == {"stripe": QuotaSettings(rate=Rate(5, 1))}
    value = found.values["quotas.stripe.rate"]
    assert (value.shown, value.origin) == ("5/s", "jobpool.toml [quotas.stripe] rate")
    assert found.values['tenants."*".weight'].shown == "2"


def test_a_name_that_is_no_bare_key_is_quoted():
    found = build(files=toml('[quotas."api.v2"]\nconcurrency = 3'))
    assert 'quotas."api.v2".concurrency' in found.values
    assert found.settings.quotas["api.v2"].concurrency == 3


def test_what_is_declared_is_published_with_each_kinds_own_cap():
    assert published() == {
        "stripe": STRIPE,
        "cap": CAP,
        "kind:shop.charge": Quota(name="kind:shop.charge", concurrency=20),
    }
    assert needs_of(settings(), CHARGE) == (
        Need("stripe", 2),
        Need("kind:shop.charge"),
    )
    assert needs_of(settings(), MAIL) == ()


def test_the_configuration_overrides_what_is_declared_number_by_number():
    found = published('[quotas.stripe]\nrate = "5/s"\nthrottle_max = "1m"')["stripe"]
    assert found == Quota(
        name="stripe",
        rate=Rate(5, 1),
        burst=20,
        concurrency=8,
        wait_s=2,
        throttle_max_s=60,
        source="code, configuration",
    )


def test_a_quota_may_be_in_the_configuration_alone():
    found = published('[quotas.ftp]\nconcurrency = 3\nscope = "host"')["ftp"]
    assert found == Quota(
        name="ftp", concurrency=3, host_only=True, source="configuration"
    )


def test_a_burst_may_be_of_a_rate_that_another_application_declares():
    """Both read the same configuration."""
    assert published("[quotas.ftp]\nburst = 3")["ftp"].burst is None


def test_a_kinds_cap_may_be_in_the_configuration():
    """It overrides the decorator's, under any of the kind's names."""
    text = "[kinds.'shop.charge']\nconcurrency = 5\n[kinds.'shop.mail']\nconcurrency=1"
    found = published(text)
    assert found["kind:shop.charge"].concurrency == 5
    assert found["kind:shop.mail"].concurrency == 1
    assert needs_of(settings(text), MAIL) == (Need("kind:shop.mail"),)


def test_a_former_name_is_published_if_its_kind_needs_anything():
    """Jobs that are stored with it count, too; here the configuration caps them."""
    kind = HandlerSpec(kind="new", pool="io", aliases=("old",))
    report = AppReport(handlers=(kind,))
    capped = settings("[kinds.old]\nconcurrency = 1")
    assert published_limits(capped, report).aliases == {"old": "new"}
    assert published_limits(settings(), report).aliases == {}


def test_tenants_are_published():
    text = '[tenants."*"]\nrate = "1/s"\n[tenants.acme]\nburst = 3\nconcurrency = 2'
    assert set(published_limits(settings(text), REPORT).tenants) == {
        Tenant(name="*", rate=Rate(1, 1)),
        Tenant(name="acme", burst=3, concurrency=2),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[quotas.stripe]\nscope = 'host'",
            r"\[quotas.stripe\]: scope=\"host\" has no",
        ),
        (
            "[quotas.stripe]\nconcurrency = 1",
            r"kind shop.charge: a cost of 2 of quota 'stripe' .* concurrency is 1",
        ),
        ("[quotas.cap]\nburst = 3", r"\[quotas.cap\]: burst 3 without a rate"),
        (
            "[quotas.stripe]\nrate = '1/h'\nburst = 1",
            r"kind shop.charge: a cost of 2 of quota 'stripe' .* burst is 1",
        ),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        published(text)


def test_a_need_of_a_quota_that_nobody_has_is_refused():
    """Without it, its jobs would run without any limit."""
    kind = HandlerSpec(kind="k", pool="io", needs=(Need("stirpe"),))
    report = AppReport(quotas=(STRIPE,), handlers=(kind,))
    with pytest.raises(ConfigError, match=r"quota 'stirpe', .* did you mean 'stripe'"):
        published(report=report)


def test_a_configured_quota_that_nothing_uses_is_remarked():
    """Surely a misspelt name, unless the configuration is another application's."""
    (remark,) = remarks(settings("[quotas.stirpe]\nconcurrency = 1"), REPORT)
    assert remark.startswith("[quotas.stirpe]: the application declares no quota of")
    assert "did you mean 'stripe'?" in remark
    shared = build(
        {"app": "other.py"}, files=toml("[quotas.stirpe]\nconcurrency = 1")
    ).settings
    assert list(remarks(shared, REPORT)) == []


def test_a_burst_that_slows_its_rate_is_remarked():
    """It cannot be seen from the numbers."""
    report = AppReport(quotas=(Quota(name="s", rate=Rate(10, 1), burst=1),))
    (remark,) = remarks(settings(), report)
    assert "every 150ms instead of every 100ms" in remark
    assert "a burst of 2 has the whole rate" in remark
    slow = AppReport(quotas=(Quota(name="s", rate=Rate(1, 60), burst=1), STRIPE))
    assert list(remarks(settings(), slow)) == []


def test_what_is_said_of_pools_and_weights_is_published():
    """Of pools only what is not the plain order; of kinds also by their old names."""
    text = """
[pools.io]
fair = "tenant"
aging = "1/m"
[pools.cpu]
fair = "none"
[kinds."shop.charge"]
weight = 3
[tenants.acme]
weight = 0.5
"""
    found = build(files=toml(text))
    assert found.values["pools.io.aging"].shown == "1/m"
    limits = published_limits(found.settings, REPORT)
    assert limits.pools == (PoolRule(name="io", fair="tenant", aging_s=60.0),)
    assert limits.kinds == (KindRule(kind="shop.charge", weight=3.0),)
    assert limits.is_asking


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('[pools.io]\nfair = "all"', "expected one of none, tenant, kind"),
        ('[pools.io]\naging = "fast"', "is not a rate"),
        ("[kinds.k]\nweight = 0", "a weight from 0.01 to 1000"),
    ],
)
def test_what_a_pool_cannot_be_is_refused(line, said):
    """With what it can be."""
    with pytest.raises(ConfigError, match=said):
        build(files=toml(line))
