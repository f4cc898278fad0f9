"""Jobs in another pool than their kind's own run there."""

import pytest

from support.postgres.server import server
from support.site.supervising import Site

APP = """
@jobs.job("cpu", kind="compute", aliases=["reckon"])
def compute():
    return os.getppid()


@jobs.job("io", kind="fetch", memory="300MiB", concurrency=4)
def fetch():
    return current().limits.timeout_s


@jobs.job("cpu", kind="spread")
def spread():
    job = compute.options(pool="io").enqueue()
    try:
        compute.options(pool="nowhere").enqueue()
    except jobpool.UsageError as exc:
        return [job.id, str(exc)]
"""


@pytest.fixture(params=["sqlite", "postgres"])
def site(request, tmp_path):
    with Site(tmp_path, APP) as site:
        if request.param == "postgres":
            site.url = server().store_url()
        site.extra = {
            "JOBPOOL_STORE": site.url,
            "JOBPOOL_RUN_DIR": str(tmp_path / "runs"),
        }
        yield site


def test_a_job_runs_in_the_pool_that_it_was_given(site):
    """Whether it was there before the supervisor or came later; aliases as well."""
    before = site.add("compute", pool="io")
    supervisor = site.start("cpu=1,io=1", env=site.extra)
    later = site.add("reckon", pool="io")
    for job in (before, later):
        assert site.result(job) == supervisor.pid
        assert site.job(job).slot.startswith("io/")
    assert site.job(site.add("compute")).pool == "cpu"


def test_its_limits_are_those_of_the_pool_that_it_is_in(site):
    """And it runs where nobody runs its own pool."""
    site.start("cpu=1", env={**site.extra, "JOBPOOL_TIMEOUT": "cpu=77s"})
    assert site.result(site.add("fetch", pool="cpu")) == 77.0
    (kind,) = [one for one in site.store.kinds() if one.kind == "fetch"]
    assert (kind.pool, kind.timeout_s) == ("io", 77.0)


def test_a_handler_may_choose_among_the_pools(site):
    site.start("cpu=1,io=1", env=site.extra)
    made, refused = site.result(site.add("spread"))
    assert "pool 'nowhere' is in no configuration" in refused
    site.finish(made)
    assert site.job(made).slot.startswith("io/")


def test_a_burst_runs_them_too(site):
    job = site.add("compute", pool="io")
    assert (
        site.launch("--burst", "--pools", "cpu=1,io=1", env=site.extra).wait_exit() == 0
    )
    assert site.job(job).state == "succeeded"
