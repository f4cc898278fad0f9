"""Reading within a caller's transaction, which a store in memory has not."""

import contextlib
import sqlite3

import pytest

from jobpool.errors import UsageError
from support.postgres.server import server
from support.store.storing import new_job

ENGINES = ["sqlite", "postgres"]


@pytest.fixture
def connection(store):
    """A caller's own, with a transaction open."""
    if store.url.startswith("sqlite"):
        path = store.url.removeprefix("sqlite:///")
        opened = sqlite3.connect(path, isolation_level=None)
    else:
        opened = server().connect(store.url)
    with contextlib.closing(opened):
        opened.execute("BEGIN")
        yield opened


def test_a_transaction_sees_its_own_jobs(store, connection):
    """By id and by ref, with their arguments; nobody else does, until it commits."""
    (one,) = store.enqueue([new_job(payload=b'{"n":1}')], connection)
    seen = store.get(one.id, connection)
    assert (seen.id, seen.state) == (one.id, one.state)
    assert store.id_of(seen.ref, connection) == one.id
    assert store.payload(one.id, connection) == b'{"n":1}'
    assert store.get(one.id) is None
    assert store.payload(one.id) is None
    connection.execute("COMMIT")
    assert store.get(one.id) == seen


def test_after_a_rollback_nobody_sees_it(store, connection):
    """Nor does the connection that had enqueued it."""
    (one,) = store.enqueue([new_job()], connection)
    connection.execute("ROLLBACK")
    connection.execute("BEGIN")
    assert store.get(one.id, connection) is None
    assert store.payload(one.id, connection) is None


def test_reading_leaves_the_transaction_open(store, connection):
    """What it has written before is neither committed nor undone."""
    (one,) = store.enqueue([new_job()], connection)
    assert store.get(one.id + 1, connection) is None
    assert store.id_of("1-abc", connection) is None
    assert store.get(one.id) is None
    connection.execute("COMMIT")
    assert store.get(one.id).id == one.id


def test_a_closed_connection_is_refused(store, connection):
    """As for enqueueing."""
    connection.close()
    with pytest.raises(UsageError, match="connection"):
        store.get(1, connection)
