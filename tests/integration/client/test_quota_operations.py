"""Quotas and tenants from Python: read and changed, as this process's user."""

import datetime as dt

import msgspec
import pytest

from jobpool import JobPool, UsageError
from jobpool.core.rules.quotas.definition import Limits, Need, Quota, Tenant
from jobpool.core.rules.quotas.rate import parse_rate
from jobpool.store.opening import open_store
from jobpool.store.records.operating import AuditFilter
from support.store.cli_store import KIND, RUN, enqueue

STRIPE = Quota(name="stripe", rate=parse_rate("100/s"), burst=50, concurrency=2)
LIMITS = Limits(quotas=(STRIPE,), tenants=(Tenant(name="*", concurrency=5),))


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def store(url):
    store = open_store(url)
    kind = msgspec.structs.replace(KIND, needs=(Need("stripe"),))
    store.begin_run(msgspec.structs.replace(RUN, limits=LIMITS), [kind], 60.0)
    yield store
    store.close()


@pytest.fixture
def jobs(url, store):
    jobs = JobPool(url)
    yield jobs
    jobs.close()


def lease(store):
    batch = store.lease(RUN.id, {"cpu": 10}, {"cpu": [KIND.kind]})
    return [one.id for one in batch.leases]


def trail(store):
    return [(row.action, row.note) for row in store.audits(AuditFilter())][::-1]


def test_quotas_are_read_with_what_they_hold_back(jobs, store):
    """As they are in force."""
    enqueue(store, 5)
    assert len(lease(store)) == 2
    (found,) = jobs.quotas.list()
    assert (found.name, found.concurrency, found.rate) == ("stripe", 2, "100/s")
    assert (found.burst, found.source, found.kinds) == (50, "code", (KIND.kind,))
    assert (found.used, found.waiting, found.closed) == (2, 3, 1)
    assert jobs.quotas.get("stripe") == found
    assert jobs.quotas.get("other") is None
    (bucket,) = jobs.quotas.buckets("stripe")
    assert (bucket.value, bucket.used, bucket.free, bucket.waiting) == ("", 2, 0, 3)
    assert bucket.reason


def test_a_quota_is_set_for_a_while_and_reset(jobs, store):
    """On record, with its note; what changes nothing says so."""
    assert jobs.quotas.set("stripe", rate="5/s", duration="2h", note="busy")
    (found,) = jobs.quotas.list()
    assert (found.rate, found.concurrency) == ("5/s", 2)
    assert found.set_by
    left = found.set_until - dt.datetime.now(dt.UTC)
    assert dt.timedelta(hours=1) < left <= dt.timedelta(hours=2)
    assert jobs.quotas.reset("stripe")
    assert not jobs.quotas.reset("stripe")
    assert jobs.quotas.get("stripe").rate == "100/s"
    assert trail(store) == [("quotas set", "busy"), ("quotas reset", None)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "expected rate, burst or concurrency"),
        ({"rate": "5"}, "is not a rate"),
        ({"concurrency": 0}, "concurrency"),
        ({"rate": "5/s", "duration": "soon"}, "duration"),
    ],
)
def test_what_cannot_be_set_is_refused(jobs, store, given, said):
    """Nothing was changed, and the message says so."""
    with pytest.raises(UsageError, match=said) as caught:
        jobs.quotas.set("stripe", **given)
    assert "nothing was changed" in str(caught.value).lower()
    assert not trail(store)


def test_tenants_have_rules_that_are_set_and_removed(jobs, store):
    """Above those of the configuration."""
    assert jobs.tenants.set("acme", concurrency=1, rate="5/s", note="trial")
    assert not jobs.tenants.set("acme", concurrency=1, rate="5/s")
    found = {one.name: one for one in jobs.tenants.list()}
    assert (found["acme"].concurrency, found["acme"].rate) == (1, "5/s")
    assert (found["acme"].is_set, found["*"].is_set) == (True, False)
    assert jobs.tenants.remove("acme")
    assert not jobs.tenants.remove("acme")
    assert {one.name for one in jobs.tenants.list()} == {"*"}
    with pytest.raises(UsageError, match="nothing was changed"):
        jobs.tenants.set("acme")
    assert trail(store) == [("tenants set", "trial"), ("tenants remove", None)]


@pytest.mark.parametrize("named", [{"tenant": "acme"}, {"quota": "stripe"}])
def test_a_tenant_and_a_quota_are_paused_and_resumed(jobs, store, named):
    """As pools and kinds are."""
    (job_id,) = enqueue(store, tenant="acme")
    assert jobs.pause(**named, duration="10m")
    assert not lease(store)
    assert jobs.resume(**named)
    assert lease(store) == [job_id]
    with pytest.raises(UsageError, match="name one"):
        jobs.pause(tenant="acme", quota="stripe")
