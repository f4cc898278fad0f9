"""Jobs that a handler stores on its own PostgreSQL connection, as it commits."""

from contextlib import closing

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.errors import QueueFull, Superseded, UsageError
from jobpool.store.handler_transactions import complete, enqueue
from support.site.handler_site import Site
from support.store.storing import lease, new_job


@pytest.fixture
def site(new_store_url, clock):
    with closing(Site(new_store_url(), clock)) as site:
        yield site


def test_jobs_enqueued_beside_an_attempt_belong_to_its_transaction(site):
    """Stored with the handler's commit, and gone with its rollback."""
    claim = site.claim(site.attempted())
    (made,) = enqueue(site.connection, claim, [new_job(payload=b"1")])
    assert (made.created, made.state) == (True, JobState.RUNNABLE)
    assert site.store.get(made.id) is None
    site.connection.rollback()
    assert site.store.get(made.id) is None
    (made,) = enqueue(site.connection, claim, [new_job(payload=b"2")])
    site.connection.commit()
    assert site.store.payload(made.id) == b"2"
    assert [one.id for one in lease(site.store)] == [made.id]


def test_jobs_enqueued_beside_an_attempt_respect_the_queue_limit(site):
    """The limit is the application's, as the claim says."""
    claim = site.claim(site.attempted(), depth_max=3)
    with pytest.raises(QueueFull):
        enqueue(site.connection, claim, [new_job()] * 3)
    site.connection.rollback()
    assert len(enqueue(site.connection, claim, [new_job()] * 2)) == 2


def test_a_superseded_attempt_stores_no_jobs(site):
    """Its transaction cannot commit any more; without one it is refused."""
    granted = site.attempted()
    claim = site.claim(granted)
    with pytest.raises(Superseded):
        enqueue(site.connection, claim._replace(token=granted.token + 1), [new_job()])
    with pytest.raises(Exception, match="aborted"):
        site.connection.execute("SELECT 1")
    site.connection.rollback()
    site.connection.autocommit = True
    for refused in (
        lambda: enqueue(site.connection, claim, [new_job()]),
        lambda: complete(site.connection, claim, b"null"),
    ):
        with pytest.raises(UsageError, match="no transaction is open"):
            refused()
    assert site.store.get(granted.id).state is JobState.LEASED
