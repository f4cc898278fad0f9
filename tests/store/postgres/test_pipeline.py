"""Round trips on a PostgreSQL connection: what is prepared, and what an end means."""

import contextlib

import pytest

from jobpool.errors import JobpoolBug, StoreError, StoreRefused, StoreUnavailable
from jobpool.store.postgres.connection import pipeline as wires
from jobpool.store.records.operating import Filter
from support.store.storing import begin_run, new_job

OFTEN = 12
"""More often than it takes until a statement is prepared."""


class Interrupted(BaseException):
    """As a signal handler raises it, anywhere."""


@pytest.fixture
def store(store_factory):
    return store_factory()


def session_of(store):
    return store._server._session


def prepared(store):
    """Return how many statements this connection has prepared under our names."""
    return (
        session_of(store)
        .connection.execute(
            "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'jobpool%'"
        )
        .fetchone()[0]
    )


def ask(store, name, *givens, times=1):
    """Send a statement within a transaction, several times in one trip."""
    with store._server.writing() as session:
        return session.ask(*((name, given) for given in givens for _ in range(times)))


def test_a_frequent_statement_is_prepared_and_gives_the_same_answers(store):
    """Before it is prepared, in the same trip, and ever after."""
    found = [ask(store, "counter", {"name": "store_id"}) for _ in range(OFTEN)]
    assert found == [found[0]] * OFTEN
    assert found[0] != [[]]
    before = prepared(store)
    assert before
    ask(store, "counter", {"name": "store_id"})
    assert prepared(store) == before


def test_no_statement_is_compiled(store):
    """Not outside of a transaction, nor, behind a pooler, in one.

    By default a server compiles what its planner calls expensive, as it calls each
    table that it has to read whole: three rows took half a second.
    """
    connection = session_of(store).connection
    assert connection.execute("SHOW jit").fetchone() == ("off",)
    connection.execute("SET jit = on")  # as a pooler's session has it
    with store._server.writing() as session:
        session.rows("now")
        assert connection.execute("SHOW jit").fetchone() == ("off",)


def test_a_statement_sent_twice_in_a_trip_is_prepared_once(store):
    """Otherwise a prepared statement would be left behind on the server."""
    ask(store, "savepoint", {}, times=OFTEN)  # so are those of the transaction
    ask(store, "now", {}, times=1)
    before = prepared(store)
    ask(store, "counter", {"name": "store_id"}, times=OFTEN)
    assert prepared(store) <= before + 4  # itself, begin, begun and rollback


def test_the_number_of_prepared_statements_is_bounded(store, monkeypatch):
    """Later statements are sent whole each time, and are answered as well."""
    for _ in range(OFTEN):
        ask(store, "now", {})
    before = prepared(store)
    monkeypatch.setattr(wires, "KEPT_MAX", before)
    for _ in range(OFTEN):
        assert ask(store, "counter", {"name": "store_id"}) != [[]]
    assert prepared(store) == before


def test_behind_a_pooler_nothing_is_prepared(store):
    """A prepared statement belongs to a connection that another client may get next."""
    session_of(store).connection.prepare_threshold = None
    before = prepared(store)  # when it was opened
    for _ in range(OFTEN):
        store.enqueue([new_job()])
    assert prepared(store) == before


def test_the_table_of_counted_statements_is_bounded(store, monkeypatch):
    """The table of counts is emptied when it is full.

    Frequent statements are still found.
    """
    monkeypatch.setattr(wires, "COUNTED_MAX", 1)
    for _ in range(OFTEN):
        store.enqueue([new_job()])
        assert len(session_of(store)._wire._come) <= 2
    assert store.count(Filter()) == OFTEN


@pytest.mark.parametrize("interruption", [Interrupted, KeyboardInterrupt, ValueError])
def test_an_interrupted_trip_ends_the_connection(store, monkeypatch, interruption):
    """A late answer is not mistaken for the answer to the next question."""
    connection = session_of(store).connection

    def wait(answers, *_args, **_given):
        next(answers)  # it is sent
        raise interruption

    monkeypatch.setattr(connection, "wait", wait)
    with pytest.raises(interruption), store._server.reading() as session:
        session.value("counter", name="store_id")
    assert connection.closed
    assert store._server.now_ms(store._server._ready()) > 10**12
    store.enqueue([new_job()])
    assert store.count(Filter()) == 1


def test_a_value_that_cannot_be_sent_undoes_only_its_own_step(store):
    """Nothing of its trip was sent: the savepoint before it is still to be set."""
    begin_run(store)
    with store._server.writing() as session:
        for has_begun in (False, True):
            session.begin_step()
            with pytest.raises(StoreRefused):
                session.rows("counter", name="\0")
            session.undo_step()
            assert (session.known_ms is not None) == has_begun
            assert session.value("counter", name="store_id")
    store.enqueue([new_job()])
    assert store.count(Filter()) == 1


def test_a_failed_trip_keeps_what_is_known_of_its_transaction(store):
    """The transaction has begun, so there is something to roll back."""
    known = []

    def fail():
        with store._server.writing() as session:
            try:
                session.rows("outcome_of", xid="no number")
            finally:
                known.extend((session.known_ms, session.xid))

    with pytest.raises(StoreRefused):
        fail()
    assert all(known)
    store.enqueue([new_job()])
    assert store.count(Filter()) == 1


@pytest.mark.parametrize("wakes", [False, True])
def test_a_commit_answered_with_a_rollback_is_not_believed(store, wakes):
    """After an unnoticed failure a server answers COMMIT with ROLLBACK."""

    def overlook():
        with store._server.writing(wakes=wakes) as session:
            assert session.value("counter", name="store_id")
            with contextlib.suppress(StoreError):
                session.run("outcome_of", xid="no number")

    with pytest.raises(JobpoolBug, match="none of it is stored"):
        overlook()
    assert store.count(Filter()) == 0
    store.enqueue([new_job()])
    assert store.count(Filter()) == 1


def test_a_connection_that_is_gone_says_so(store):
    """And the next use opens a new one."""
    session = session_of(store)
    with session_of(store).connection.cursor() as cursor, pytest.raises(Exception):  # noqa: B017, PT011 - of psycopg's
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(StoreUnavailable):
        session.value("now")
    store.enqueue([new_job()])
    assert store.count(Filter()) == 1


@pytest.mark.parametrize(
    ("query", "text", "names"),
    [
        ("SELECT '100%%'", b"SELECT '100%%'", ()),
        ("SELECT %(a)s, '100%%'", b"SELECT $1, '100%'", ("a",)),
        ("%(b)s %(a)s %(b)s", b"$1 $2 $1", ("b", "a")),
    ],
)
def test_named_parameters_are_numbered(query, text, names):
    """Each value has one placeholder, however often it is named."""
    assert wires._written(query) == (text, names)
