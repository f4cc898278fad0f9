"""Quotas and tenants in the browser, and what is done about them."""

import pytest

from jobpool.core.rules.quotas.breaker import BreakerState
from jobpool.core.rules.quotas.definition import Limits, Need, Quota, Tenant
from jobpool.core.rules.quotas.rate import Rate
from jobpool.dashboard.screens.quotas import lines_of
from jobpool.operations.principal import Role
from jobpool.store.records.quotas import BucketRow, QuotaRow, ServiceRow
from support.store.storing import begin_run, kind_record, lease, new_job


@pytest.fixture
def stripe(store):
    """Two at once, and three jobs that need it: one has to wait."""
    limits = Limits(
        quotas=(Quota(name="stripe", concurrency=2, rate=Rate(100, 1.0)),),
        tenants=(Tenant(name="acme", concurrency=5),),
    )
    kinds = [kind_record(needs=(Need("stripe"),))]
    begin_run(store, "run-2", kinds=kinds, pools={"cpu": "4"}, limits=limits)
    store.enqueue([new_job(tenant="acme"), new_job(tenant="acme"), new_job()])
    lease(store, "run-2", kinds={"cpu": ["shop.thumbnail"]})
    return store


def quota_of(store):
    return {row.name: row for row in store.quotas()}["stripe"]


def test_quotas_are_listed_with_their_use_and_who_waits(browser, stripe):
    page = browser.get("/quotas").text
    assert 'href="/quotas/stripe"' in page
    assert "2 at once, 100/s with burst 100" in page
    assert "2 of 2" in page


def test_a_quota_gets_other_numbers_and_has_its_own_again(browser, stripe):
    fields = {"concurrency": "7", "rate": "", "for": "2h", "note": "slow today"}
    answer = browser.post("/quotas/stripe/set", fields)
    assert answer.headers["Location"] == "/quotas/stripe"
    assert quota_of(stripe).quota.concurrency == 7
    assert quota_of(stripe).override.who == "ada"
    assert "slow today" in browser.get("/quotas/stripe").text
    browser.post("/quotas/stripe/reset")
    assert quota_of(stripe).override is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"concurrency": "many"},
        {"concurrency": "0"},
        {"rate": "fast"},
        {"burst": "-1"},
        {"concurrency": "9" * 30},
        {"concurrency": "3", "for": "soon"},
    ],
)
def test_numbers_that_are_none_change_nothing(browser, stripe, fields):
    assert browser.post("/quotas/stripe/set", fields).status_code == 400
    assert quota_of(stripe).override is None


def test_a_quota_is_paused_and_resumed(browser, stripe):
    named = {"what": "quota", "name": "stripe"}
    answer = browser.post("/pause", named | {"for": "10m"})
    assert answer.headers["Location"] == "/quotas/stripe"
    assert quota_of(stripe).paused.until_ms is not None
    assert "paused" in browser.get("/quotas/stripe").text
    browser.post("/resume", named)
    assert quota_of(stripe).paused is None


@pytest.mark.parametrize("what", ["", "jobs", "whole_store"])
def test_only_what_can_be_paused_is(browser, stripe, what):
    assert browser.post("/pause", {"what": what, "name": "x"}).status_code == 400
    assert stripe.pauses() == []


def test_a_viewer_changes_no_quota(browser, stripe):
    browser.access.role = Role.VIEWER
    assert 'method="post"' not in browser.get("/quotas/stripe").text
    assert browser.post("/quotas/stripe/set", {"burst": "3"}).status_code == 403
    assert quota_of(stripe).override is None


@pytest.mark.parametrize(
    ("state", "label"),
    [
        (BreakerState.CLOSED, ("open", "")),
        (BreakerState.OPEN, ("service down", "bad")),
        (BreakerState.PROBING, ("probing its service", "warn")),
    ],
)
def test_what_a_breaker_has_seen_is_said_of_its_quota(state, label):
    service = ServiceRow(state=state, requests=20, failures=12)
    bucket = BucketRow(quota="mail", value="", service=service)
    row = QuotaRow(name="mail", quota=Quota(name="mail"), bucket=bucket)
    (line,) = lines_of([row], 0)
    assert (line.label, line.tone) == label


def test_tenants_are_listed_with_their_rules_and_unfinished_jobs(browser, stripe):
    page = browser.get("/tenants").text
    assert 'href="/tenants/acme"' in page
    assert "5 at once" in page
    one = browser.get("/tenants/acme").text
    assert "<dt>leased</dt><dd>1</dd>" in one
    assert "<dt>runnable</dt><dd>1</dd>" in one


def test_a_tenant_gets_a_rule_and_loses_it_again(browser, stripe):
    """Any text can be a tenant; its weight counts in fair pools."""
    name = "a/b <i>"
    fields = {"tenant": name, "concurrency": "3", "weight": "2.5"}
    answer = browser.post("/tenants/set", fields)
    assert answer.headers["Location"] == "/tenants/a%2Fb%20%3Ci%3E"
    rules = {row.name: row.tenant for row in stripe.tenants()}
    assert (rules[name].concurrency, rules[name].weight) == (3, 2.5)
    page = browser.get(answer.headers["Location"]).text
    assert "a/b &lt;i&gt;" in page
    assert "<i>" not in page
    browser.post("/tenants/remove", {"tenant": name})
    assert name not in {row.name for row in stripe.tenants()}


@pytest.mark.parametrize("weight", ["heavy", "nan", "-1", "1e9"])
def test_a_weight_that_is_none_changes_nothing(browser, stripe, weight):
    fields = {"tenant": "acme", "weight": weight}
    assert browser.post("/tenants/set", fields).status_code == 400
    assert not any(row.is_set for row in stripe.tenants())


def test_a_tenant_is_paused_and_resumed(browser, stripe):
    named = {"what": "tenant", "name": "acme"}
    assert browser.post("/pause", named).headers["Location"] == "/tenants/acme"
    assert "paused" in browser.get("/tenants").text.lower()
    browser.post("/resume", named)
    assert stripe.pauses() == []
