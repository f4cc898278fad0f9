"""Values that can only be written by hand, in every database: one job ends by them."""

from contextlib import closing

import pytest

from jobpool.core.jobs.job import JobState
from support.postgres.server import query_of
from support.site.handler_site import Site
from support.store.storing import lease, new_job

ENGINES = ["sqlite", "postgres"]
EIB = 2**60

BAD = [
    ("max_attempts", 0),
    ("max_attempts", 2**31 + 1),
    ("timeout_s", 0.0),
    ("timeout_s", -1.0),
    ("timeout_s", float("inf")),
    ("memory_bytes", 0),
    ("memory_bytes", EIB + 1),
]
GOOD = [
    ("max_attempts", 1),
    ("max_attempts", 2**31),
    ("timeout_s", 1e-9),
    ("memory_bytes", 1),
    ("memory_bytes", EIB),
    ("failures", 2**31 - 1),
    ("recoveries", 2**31 - 1),
    ("expires_at_ms", 2**62),
]


@pytest.fixture
def site(new_store_url, clock):
    with closing(Site(new_store_url(), clock)) as site:
        yield site


def write(site, job_id, column, value):
    """Set one value of a job by hand."""
    is_file = site.url.startswith("sqlite")
    table = "jobpool_jobs" if is_file else f"{query_of(site.url)['schema']}.jobs"
    mark = "?" if is_file else "%s"
    site.connection.execute(
        f"UPDATE {table} SET {column} = {mark} WHERE id = {job_id}",  # noqa: S608 - our names
        (value,),
    )
    site.connection.commit()


@pytest.mark.parametrize(("column", "value"), BAD)
def test_a_job_that_cannot_be_read_is_dead_and_stops_no_other(site, column, value):
    """A lease request gets the others, and learns that there may be more."""
    spoilt, whole = site.store.enqueue([new_job(priority=1), new_job()])
    write(site, spoilt.id, column, value)
    batch = site.store.lease("run-1", {"cpu": 1}, {"cpu": ["shop.thumbnail"]})
    assert (batch.leases, batch.next_due_in_s) == ((), 0.0)
    job = site.store.get(spoilt.id)
    assert (job.state, job.finished_at_ms) == (JobState.DEAD, site.store_ms())
    assert "cannot be read" in job.reason
    assert [one.id for one in lease(site.store)] == [whole.id]


@pytest.mark.parametrize(("column", "value"), BAD)
def test_a_lease_that_cannot_be_read_belongs_to_no_run(site, column, value):
    """Also one whose cancel was requested; the dead run's other leases are found."""
    made = site.store.enqueue([new_job()] * 2)
    spoilt, whole = (one.id for one in made)
    lease(site.store)
    site.store.cancel([spoilt])
    write(site, spoilt, column, value)
    assert [one.id for one in site.store.leases_of("run-1")] == [whole]
    job = site.store.get(spoilt)
    assert (job.state, job.supervisor) == (JobState.DEAD, None)
    assert (job.cancel_requested, job.lease_until_ms) == (False, None)
    assert site.store.cancel_requests("run-1") == []


@pytest.mark.parametrize(("column", "value"), GOOD)
def test_a_row_that_can_be_read_is_run(site, column, value):
    """However odd it is."""
    (made,) = site.store.enqueue([new_job()])
    write(site, made.id, column, value)
    assert [one.id for one in lease(site.store)] == [made.id]
    (found,) = site.store.leases_of("run-1")
    assert getattr(found, column, value) == value
