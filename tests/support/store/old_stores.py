"""Makes stores as older versions of jobpool did, with a job in each state."""

import contextlib
import sqlite3
from unittest import mock

from jobpool.store.opening import open_store
from jobpool.store.postgres.connection import connect as on_server
from jobpool.store.sqlite.connection import connect as in_file
from jobpool.store.statements.named_sql import load_migrations
from support.postgres.server import query_of, server

STATES = {
    1: "runnable",
    2: "dead",
    3: "pending",
    4: "leased",
    5: "succeeded",
    6: "quarantined",
    7: "canceled",
}
_ROWS = """
INSERT INTO {jobs} (id, kind, pool, state, created_at_ms, run_at_ms)
VALUES
  (1, 'shop.thumbnail', 'cpu', 'runnable', 1, 1),
  (3, 'shop.later', 'cpu', 'pending', 1, 4102444800000);
INSERT INTO {jobs} (
  id, kind, pool, state, created_at_ms, run_at_ms, attempt, token, supervisor,
  leased_at_ms
)
VALUES (4, 'shop.leased', 'cpu', 'leased', 1, 1, 1, 8, 'run-0', 5);
INSERT INTO {jobs} (
  id, kind, pool, state, created_at_ms, run_at_ms, attempt, outcome, finished_at_ms,
  failures, reason
)
VALUES
  (2, 'shop.thumbnail', 'cpu', 'dead', 1, 1, 5, 'failed', 9, 5, 'failure 5 of 5'),
  (5, 'shop.thumbnail', 'cpu', 'succeeded', 1, 1, 1, 'succeeded', 9, 0, NULL),
  (6, 'shop.thumbnail', 'cpu', 'quarantined', 1, 1, 3, 'crashed', 9, 0, NULL),
  (7, 'shop.thumbnail', 'cpu', 'canceled', 1, 1, 0, NULL, 9, 0, NULL);
INSERT INTO {attempts} (job_id, attempt, token, outcome, started_at_ms, finished_at_ms)
VALUES (2, 5, 7, 'failed', 8, 9);
"""


def make_old(url, version):
    """Make a database of a schema's version, with rows in all states."""
    if url.startswith("sqlite"):
        _make_old_file(url, version)
    else:
        _make_old_schema(url, version)


def old_versions(engine):
    """Return the versions before the newest."""
    return range(1, len(load_migrations(engine)))


def _make_old_file(url, version):
    steps = load_migrations("sqlite")[:version]
    with mock.patch.object(in_file, "load_migrations", return_value=steps):
        store = open_store(url)
    assert store.describe()["schema_version"] == str(version)
    store.close()
    path = url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            _ROWS.format(jobs="jobpool_jobs", attempts="jobpool_attempts")
        )
        for job_id in STATES:
            connection.execute(
                "INSERT INTO jobpool_payloads VALUES (?, x'7b7d')", [job_id]
            )
        connection.commit()


def _make_old_schema(url, version):
    schema = query_of(url)["schema"]
    steps = on_server.migrations_of(schema)[:version]
    with mock.patch.object(on_server, "migrations_of", return_value=steps):
        store = open_store(url)
    assert store.describe()["schema_version"] == str(version)
    store.close()
    with contextlib.closing(server().connect(url)) as connection:
        payload = f"ALTER TABLE {schema}.jobs ALTER COLUMN payload"
        connection.execute(f"{payload} SET DEFAULT '{{}}'")
        connection.execute(
            _ROWS.format(jobs=f"{schema}.jobs", attempts=f"{schema}.attempts")
        )
        connection.execute(f"{payload} DROP DEFAULT")
        connection.execute(f"SELECT setval('{schema}.job_ids', {len(STATES)})")


def layout(url):
    """Return the columns, indexes and rules of every table and view."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT type, name, sql FROM sqlite_master")
            return sorted(map(str, found))
    schema = query_of(url)["schema"]
    with contextlib.closing(server().connect(url)) as connection:
        found = [
            *connection.execute(
                "SELECT table_name, column_name, data_type, is_nullable, column_default"
                " FROM information_schema.columns WHERE table_schema = %s",
                [schema],
            ),
            *connection.execute(
                "SELECT pg_get_indexdef(indexrelid), indisvalid FROM pg_index"
                " JOIN pg_class AS c ON c.oid = indrelid"
                " WHERE relnamespace = to_regnamespace(%s)",
                [schema],
            ),
            *connection.execute(
                "SELECT conname, convalidated, pg_get_constraintdef(oid)"
                " FROM pg_constraint WHERE connamespace = to_regnamespace(%s)",
                [schema],
            ),
        ]
        return sorted(str(row).replace(schema, "") for row in found)
