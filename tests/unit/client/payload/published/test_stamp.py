"""A job from the shell is counted by the same as one that the application enqueues."""

import pytest

import jobpool
from jobpool.client.payload.published.checker import Checker, encoded
from jobpool.client.payload.published.stamp import Stamp
from jobpool.core.jobs.job import NewJob
from jobpool.errors import ArgumentsRejected


@pytest.fixture
def jobs():
    return jobpool.JobPool("memory:")


@pytest.fixture
def charge(jobs):
    fair = jobs.quota("fair", concurrency=2, per="tenant")
    vendor = jobs.quota("vendor", rate="1/s", per="args.vendor")

    @jobs.job("io", kind="charge", quotas=[fair, vendor])
    def charge(cents: int, vendor: int | str | list[int] = "all") -> None: ...

    return charge


def stamped(jobs, text, **options):
    """Return a job as `jobpool enqueue` makes it."""
    (spec,) = jobs.handler_specs()
    quotas = {quota.name: quota for quota in jobs.declared_quotas()}
    checker = Checker(spec.schema)
    given = checker.by_name(text, "ARGS-JSON")
    job = NewJob(
        kind=spec.kind, pool=spec.pool, payload=encoded(given, 1000, ""), **options
    )
    return Stamp(spec.needs, quotas, checker.defaults).on(job, given, "ARGS-JSON")


@pytest.mark.parametrize(
    ("text", "args"),
    [('{"cents": 1, "vendor": 17}', (1, 17)), ("[1, 17]", (1, 17)), ("[1]", (1,))],
)
def test_its_values_and_lane_are_those_of_the_applications(jobs, charge, text, args):
    expected = charge.options(tenant="acme", priority=3).call(*args).job
    assert stamped(jobs, text, tenant="acme", priority=3) == expected


@pytest.mark.usefixtures("charge")
def test_a_value_that_cannot_be_counted_by_is_refused(jobs):
    with pytest.raises(ArgumentsRejected, match="ARGS-JSON: argument 'vendor' is of"):
        stamped(jobs, '{"cents": 1, "vendor": [1]}')


def test_a_kind_without_quotas_is_left_alone(jobs):
    @jobs.job("io", kind="plain")
    def plain(n: int) -> None: ...

    job = stamped(jobs, "[1]")
    assert (job.quota_values, job.lane) == (None, None)
