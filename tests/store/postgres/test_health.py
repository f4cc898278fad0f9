"""What keeps PostgreSQL from removing dead rows, checked on a real server."""

import psycopg
import pytest

from support.postgres.server import libpq_url, server

EVERYBODY_S, NOBODY_S = 0.0, 3600.0


def open_transaction(**options):
    """Return a connection whose transaction has an id, and so holds rows."""
    connection = psycopg.connect(libpq_url(server().url), **options)
    connection.execute("SELECT pg_current_xact_id()")
    return connection


def held_by(store, patience_s):
    """Return what holds rows, oldest first."""
    with store._server.reading() as session:
        return session.rows("long_snapshots", patience_s=patience_s)


def pid_of(connection):
    return f"pid {connection.info.backend_pid} "


def test_the_oldest_transactions_of_this_database_are_named(store):
    """Those older than the patience; not read-only ones, nor our own."""
    with open_transaction() as first, open_transaction() as second:
        idle = psycopg.connect(libpq_url(server().url), autocommit=True)
        found = held_by(store, EVERYBODY_S)
        names = [name for _, name, _ in found if not name.startswith(pid_of(idle))]
        assert len(names) == len(found)
        ours = [n for n in names if n.startswith((pid_of(first), pid_of(second)))]
        assert len(ours) == 2
        assert ours[0].startswith(pid_of(first))
        ages_s = [age_s for _, _, age_s in found]
        assert ages_s == sorted(ages_s, reverse=True)
        assert {what for what, _, _ in found} == {"session"}
        assert held_by(store, NOBODY_S) == []
        idle.close()


def test_no_more_than_five_transactions_are_named(store):
    """A list of hundreds would not help."""
    connections = [open_transaction() for _ in range(6)]
    found = held_by(store, EVERYBODY_S)
    for connection in connections:
        connection.close()
    assert len(found) == 5


def test_transactions_in_another_database_are_not_named(store):
    """They hold back their own database's rows."""
    if not server().is_ours:
        pytest.skip("JOBPOOL_TEST_POSTGRES may have one database only")
    elsewhere = open_transaction(dbname="postgres")
    names = [name for _, name, _ in held_by(store, EVERYBODY_S)]
    assert not any(name.startswith(pid_of(elsewhere)) for name in names)
    elsewhere.close()


def test_a_snapshot_is_enough_to_hold_rows(store):
    """An open read-only transaction holds them as well; a finished one does not."""
    snapshot = psycopg.connect(libpq_url(server().url))
    snapshot.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    snapshot.execute("SELECT 1")
    other = psycopg.connect(libpq_url(server().url))
    other.execute("SELECT 1")
    names = [name for _, name, _ in held_by(store, EVERYBODY_S)]
    assert [name for name in names if name.startswith(pid_of(snapshot))]
    assert not [name for name in names if name.startswith(pid_of(other))]
    snapshot.close()
    other.close()
