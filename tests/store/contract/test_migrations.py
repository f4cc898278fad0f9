"""An older database of every version is migrated with everything in it."""

import contextlib
import sqlite3

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.store.opening import open_store
from jobpool.store.postgres.connection import connect as on_server
from jobpool.store.records import Filter
from jobpool.store.sqlite.connection import connect as in_file
from jobpool.store.statements.named_sql import load_migrations
from support.postgres.server import query_of, server
from support.store.storing import begin_run, kind_record, lease_one, new_job, succeeded

ENGINES = ["sqlite", "postgres"]
OLD = [
    (engine, version)
    for engine in ENGINES
    for version in range(1, len(load_migrations(engine)))
]
ROWS = """
INSERT INTO {jobs} (id, kind, pool, state, created_at_ms, run_at_ms)
VALUES (1, 'shop.thumbnail', 'cpu', 'runnable', 1, 1);
INSERT INTO {jobs} (
  id, kind, pool, state, created_at_ms, run_at_ms, attempt, outcome, finished_at_ms,
  failures, reason
)
VALUES (2, 'shop.thumbnail', 'cpu', 'dead', 1, 1, 5, 'failed', 9, 5, 'failure 5 of 5');
INSERT INTO {attempts} (job_id, attempt, token, outcome, started_at_ms, finished_at_ms)
VALUES (2, 5, 7, 'failed', 8, 9);
"""


def make_old(url, version, monkeypatch):
    """Make a database as the jobpool of a schema's version did."""
    with monkeypatch.context() as patch:
        if url.startswith("sqlite"):
            steps = load_migrations("sqlite")[:version]
            patch.setattr(in_file, "load_migrations", lambda _database: steps)
        else:
            known = on_server.migrations_of
            patch.setattr(
                on_server, "migrations_of", lambda schema: known(schema)[:version]
            )
        store = open_store(url)
        assert store.describe()["schema_version"] == str(version)
        store.close()
    if url.startswith("sqlite"):
        names = {"jobs": "jobpool_jobs", "attempts": "jobpool_attempts"}
        path = url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(ROWS.format(**names))
            connection.execute("INSERT INTO jobpool_payloads VALUES (1, x'7b7d')")
            connection.commit()
        return
    schema = query_of(url)["schema"]
    script = ROWS.format(jobs=f"{schema}.jobs", attempts=f"{schema}.attempts")
    with contextlib.closing(server().connect(url)) as connection:
        payload = f"ALTER TABLE {schema}.jobs ALTER COLUMN payload"
        connection.execute(f"{payload} SET DEFAULT '{{}}'")
        connection.execute(script)
        connection.execute(f"{payload} DROP DEFAULT")
        connection.execute(f"SELECT setval('{schema}.job_ids', 2)")


@pytest.fixture(params=OLD, ids=lambda old: f"{old[0]}-{old[1]}")
def old_url(request, tmp_path, monkeypatch):
    engine, version = request.param
    url = f"sqlite:///{tmp_path}/jobs.db"
    if engine == "postgres":
        url = server().fresh_url()
    make_old(url, version, monkeypatch)
    yield url
    if engine == "postgres":
        server().drop(url)


def test_an_older_databases_content_survives_the_migration(old_url):
    """Its jobs can be shown, run and settled.

    Columns that are new to them are not set.
    """
    store = open_store(old_url)
    dead, waiting = store.find(Filter())
    assert (dead.state, dead.reason) == (JobState.DEAD, "failure 5 of 5")
    assert [one.attempt for one in store.attempts(2)] == [5]
    assert waiting.state is JobState.RUNNABLE
    for job in (dead, waiting):
        assert (job.snoozes, job.snoozed_since_ms) == (0, None)
        assert (job.unfit_since_ms, job.rss_bytes) == (None, None)
    begin_run(store, kinds=[kind_record()])
    granted = lease_one(store)
    assert granted.id == 1
    store.settle([succeeded(granted)])
    assert store.get(1).state is JobState.SUCCEEDED
    assert store.revive([2], [JobState.DEAD]) == 1
    (fresh,) = store.enqueue([new_job()])
    assert fresh.id == 3
    store.close()


def test_a_migrated_database_has_everything_a_new_one_has(old_url, new_url):
    """Column by column, whatever version it began as."""
    for url in (old_url, new_url):
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


def layout(url):
    """Return the columns of every table and view."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT type, name, sql FROM sqlite_master")
            return sorted(map(str, found))
    with contextlib.closing(server().connect(url)) as connection:
        found = connection.execute(
            "SELECT table_name, column_name, data_type, is_nullable, column_default"
            " FROM information_schema.columns WHERE table_schema = %s",
            [schema := query_of(url)["schema"]],
        )
        return sorted(str(row).replace(schema, "") for row in found)
