"""What jobs are counted by, and so their lanes, is stamped when they are enqueued."""

import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest

import jobpool
from jobpool.core.rules.quotas.lanes import lane_id
from jobpool.errors import ArgumentsRejected


class Region(StrEnum):
    EU = "eu"


class Reversed:
    name = "reversed"

    def encode(self, data):
        return data[::-1]

    decode = encode


@dataclass
class Order:
    vendor: str | None
    lines: list[int]


@pytest.fixture
def jobs():
    return jobpool.JobPool("memory:")


@pytest.fixture
def vendor(jobs):
    return jobs.quota("vendor", rate="1/s", per="args.vendor")


@pytest.fixture
def charge(jobs, vendor):
    @jobs.job("io", kind="charge", quotas=[vendor])
    def charge(cents: int, vendor: Any = "none") -> None: ...

    return charge


def lane(values, *, kind="charge", priority=0, tenant=None):
    return lane_id("io", kind, priority, tenant, values)


@pytest.mark.parametrize(
    ("value", "text"),
    [("acme", "acme"), (17, "17"), (True, "true"), (None, ""), ("", "")],
)
def test_a_job_carries_what_it_is_counted_by_and_its_lane(charge, value, text):
    for call in (charge.call(5, value), charge.call(vendor=value, cents=5)):
        assert call.job.quota_values == {"vendor": text}
        assert call.job.lane == lane({"vendor": text})


def test_a_default_counts_as_if_it_was_given(charge):
    """The payload leaves it out, and a later default must not move the job."""
    assert charge.call(5).job.quota_values == {"vendor": "none"}
    assert charge.call(5).job.lane == charge.call(5, "none").job.lane
    assert b"none" not in charge.call(5).job.payload


def test_the_lane_is_of_the_jobs_own_tenant_and_priority(charge):
    bound = charge.options(tenant="acme", priority=5)
    assert bound.call(1).job.lane == lane({"vendor": "none"}, priority=5, tenant="acme")


def test_a_kind_without_quotas_has_neither(jobs):
    @jobs.job("io", kind="plain")
    def plain(vendor: str) -> None: ...

    job = plain.call("acme").job
    assert (job.quota_values, job.lane) == (None, None)


def test_a_kind_with_its_own_cap_has_a_lane_and_counts_by_nothing(jobs):
    @jobs.job("io", kind="capped", concurrency=3)
    def capped(vendor: str) -> None: ...

    job = capped.call("acme").job
    assert (job.quota_values, job.lane) == (None, lane({}, kind="capped"))


def test_typed_arguments_count_as_they_are_stored(jobs):
    quotas = [
        jobs.quota(name, rate="1/s", per=f"args.{path}")
        for name, path in (("a", "region"), ("b", "user"), ("c", "order.vendor"))
    ]

    @jobs.job("io", kind="typed", quotas=quotas)
    def typed(region: Region, user: uuid.UUID, order: Order) -> None: ...

    user = uuid.UUID(int=7)
    job = typed.call(Region.EU, user, Order("acme", [])).job
    counted = {"region": "eu", "user": str(user), "order.vendor": "acme"}
    assert job.quota_values == counted
    assert job.lane == lane(counted, kind="typed")
    nobody = typed.call(Region.EU, user, Order(None, [])).job
    assert nobody.quota_values["order.vendor"] == ""


def test_a_value_that_cannot_be_counted_by_is_refused(charge):
    for value in (1.5, [1], {"a": 1}):
        with pytest.raises(
            ArgumentsRejected,
            match=r"of charge are refused.*'vendor' counts.*argument 'vendor' is of",
        ):
            charge.call(5, value)


def test_every_item_of_a_batch_is_counted_by_its_own(jobs, charge, monkeypatch):
    stored = []

    def enqueue(batch, connection):
        stored.extend(batch)
        return []

    monkeypatch.setattr(jobs._gateway, "enqueue", enqueue)
    jobs.enqueue_many(charge, [{"cents": 1, "vendor": name} for name in "ab"])
    jobs.enqueue_many(charge.call(1, name) for name in "ab")
    assert [job.quota_values for job in stored] == [{"vendor": n} for n in "abab"]
    assert [job.lane for job in stored] == [lane({"vendor": n}) for n in "abab"]


def test_a_batch_of_a_kind_that_counts_by_nothing_has_one_lane(jobs, monkeypatch):
    @jobs.job("io", kind="capped", concurrency=3)
    def capped(n: int) -> None: ...

    stored = []
    monkeypatch.setattr(
        jobs._gateway, "enqueue", lambda jobs, _: stored.extend(jobs) or []
    )
    jobs.enqueue_many(capped, [{"n": n} for n in range(3)])
    assert {job.lane for job in stored} == {lane({}, kind="capped")}


def test_an_uncountable_item_is_named(jobs, charge):
    with pytest.raises(ArgumentsRejected, match=r"item 1 \(the first is 0\).*'vendor'"):
        jobs.enqueue_many(charge, [{"cents": 1}, {"cents": 1, "vendor": 1.5}])


def test_encoded_arguments_are_counted_before_they_are_encoded():
    """Nobody but the application can read them later."""
    jobs = jobpool.JobPool("memory:", codec=Reversed())
    vendor = jobs.quota("vendor", rate="1/s", per="args.vendor")

    @jobs.job("io", kind="charge", quotas=[vendor])
    def charge(vendor: str) -> None: ...

    assert charge.call("acme").job.quota_values == {"vendor": "acme"}


def test_a_schedules_jobs_are_counted_too(jobs, charge):
    jobs.schedule("hourly", charge.call(5, "acme"), every="1h")

    @jobs.cron("@daily")
    @jobs.job("io", kind="daily", quotas=[jobs.quota("v", rate="1/s", per="args.v")])
    def daily(v: str = "all") -> None: ...

    hourly, nightly = jobs.declared_schedules()
    assert hourly.quota_values == {"vendor": "acme"}
    assert nightly.quota_values == {"v": "all"}
