"""Backends of PostgreSQL that stores use one after the other: each is as new."""

import contextlib
import os

import pytest

from jobpool.store.opening import open_store
from support.postgres.kept_backends import KeptBackends
from support.postgres.server import server

SET = (
    "SET search_path = nowhere",
    "SELECT pg_advisory_lock(1)",
    "LISTEN anything",
    "PREPARE one AS SELECT 1",
    "CREATE TEMPORARY TABLE mine (n integer)",
)
"""What a session may leave behind."""
LEFT = """
SELECT current_setting('search_path'),
  (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
     AND pid = pg_backend_pid()),
  (SELECT count(*) FROM pg_listening_channels()),
  (SELECT count(*) FROM pg_prepared_statements),
  to_regclass('pg_temp.mine') IS NULL
"""


@pytest.fixture
def url():
    made = server().store_url()
    yield made
    server().drop(made)


@pytest.fixture
def kept():
    with contextlib.closing(KeptBackends()) as kept, kept.used():
        yield kept


def connection_of(store):
    return store._server._session.connection


def pid_of(url, *statements):
    """Open a store, run statements on its connection, and close it."""
    with contextlib.closing(open_store(url)) as store:
        for statement in statements:
            connection_of(store).execute(statement)
        return connection_of(store).info.backend_pid


def test_a_backend_serves_the_next_store_and_nothing_is_left_in_it(url, kept):
    with contextlib.closing(open_store(url)) as store:
        as_new = connection_of(store).execute(LEFT).fetchone()
    first = pid_of(url, *SET)
    with contextlib.closing(open_store(url)) as store:
        assert connection_of(store).info.backend_pid == first
        assert connection_of(store).execute(LEFT).fetchone() == as_new
        assert as_new[1:] == (0, 0, 0, True)


def test_who_has_closed_a_connection_cannot_use_it(url, kept):
    """Although its backend goes on."""
    store = open_store(url)
    connection = connection_of(store)
    store.close()
    assert connection.closed


@pytest.mark.parametrize("statement", ["BEGIN", "SELECT pg_terminate_backend(%s)"])
def test_a_backend_that_may_be_in_any_state_is_not_kept(url, kept, statement):
    """One within a transaction, and one that is gone."""
    with contextlib.closing(open_store(url)) as store:
        first = connection_of(store).info.backend_pid
        if statement == "BEGIN":
            connection_of(store).execute(statement)
        else:
            with server().connect() as other:
                other.execute(statement, [first])
    assert pid_of(url) != first


def test_a_forked_child_uses_none_of_its_parents(url, kept):
    first = pid_of(url)
    asked, answer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(answer, b"%d" % pid_of(url))
            os._exit(0)
        finally:  # whatever happens, it must not go on with the tests
            os._exit(1)
    os.close(answer)
    with open(asked, "rb") as said:  # noqa: PTH123 - a pipe
        its = int(said.read())
    assert os.waitpid(child, 0)[1] == 0
    assert its != first == pid_of(url)
