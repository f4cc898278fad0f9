"""An older database of every version is migrated with everything in it."""

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.store.opening import migrate, open_store
from support.postgres.server import server
from support.store.old_stores import STATES, layout, make_old, old_versions
from support.store.storing import begin_run, kind_record, lease_one, new_job, succeeded

OLD = [
    (engine, version)
    for engine in ("sqlite", "postgres")
    for version in old_versions(engine)
]


def silent(_line):
    """Take what is told to an operator."""


@pytest.fixture(params=OLD, ids=lambda old: f"{old[0]}-{old[1]}")
def old_url(request, tmp_path):
    engine, version = request.param
    url = f"sqlite:///{tmp_path}/jobs.db"
    if engine == "postgres":
        url = server().fresh_url()
    make_old(url, version)
    yield url
    if engine == "postgres":
        server().drop(url)


def test_an_older_databases_content_survives_the_migration(old_url):
    """Its jobs can be shown, run and settled.

    Columns that are new to them are not set.
    """
    migrate(old_url, silent)
    store = open_store(old_url)
    assert {job_id: store.get(job_id).state for job_id in STATES} == STATES
    dead = store.get(2)
    assert (dead.state, dead.reason) == (JobState.DEAD, "failure 5 of 5")
    assert [one.attempt for one in store.attempts(2)] == [5]
    for job in map(store.get, STATES):
        assert (job.snoozes, job.snoozed_since_ms) == (0, None)
        assert (job.unfit_since_ms, job.rss_bytes) == (None, None)
    begin_run(store, kinds=[kind_record()])
    granted = lease_one(store)
    assert granted.id == 1
    store.settle([succeeded(granted)])
    assert store.get(1).state is JobState.SUCCEEDED
    assert store.revive([2], [JobState.DEAD]) == 1
    (fresh,) = store.enqueue([new_job()])
    assert fresh.id == len(STATES) + 1
    store.close()


def test_a_migrated_database_has_everything_a_new_one_has(old_url, new_url):
    """Columns, indexes and rules, whatever version it began as."""
    for url in (old_url, new_url):
        migrate(url, silent)
        open_store(url).close()
    assert layout(old_url) == layout(new_url)


@pytest.fixture
def new_url(old_url, tmp_path):
    if old_url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path}/new.db"
        return
    url = server().fresh_url()
    yield url
    server().drop(url)
