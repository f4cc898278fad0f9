"""The caller's own connection: jobs and business rows commit or vanish together."""

import sqlite3
import sys
import threading

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.errors import KeyConflict, StoreUnavailable, UsageError
from jobpool.store.records.operating import Filter
from support.store.storing import lease_one, new_job, succeeded

EVERYTHING = Filter()
NEEDS_AUTOCOMMIT = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="Connection.autocommit came with Python 3.12"
)


@pytest.fixture
def connect(database_path):
    """Open connections as applications do; close them afterwards."""
    opened = []

    def make(**options):
        connection = sqlite3.connect(options.pop("database", database_path), **options)
        opened.append(connection)
        return connection

    yield make
    for connection in opened:
        connection.close()


@pytest.fixture(
    params=[
        {},
        {"isolation_level": "IMMEDIATE"},
        {"isolation_level": None},
        {"detect_types": sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES},
        pytest.param({"autocommit": True}, marks=NEEDS_AUTOCOMMIT),
        pytest.param({"autocommit": False}, marks=NEEDS_AUTOCOMMIT),
    ],
    ids=str,
)
def options(request):
    """Every transaction mode of Python's connections."""
    return request.param


@pytest.fixture
def connection(store, connect, options):
    with connect(isolation_level=None) as first:
        first.execute("CREATE TABLE orders (name TEXT)")
    return connect(**options)


def orders(connect):
    return connect().execute("SELECT count(*) FROM orders").fetchone()[0]


def begin(connection):
    if not connection.in_transaction:
        connection.execute("BEGIN")


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_job_and_row_share_their_fate(store, connection, connect, ending):
    """Committed together, rolled back together; others see neither before."""
    begin(connection)
    connection.execute("INSERT INTO orders VALUES ('first')")
    (answer,) = store.enqueue([new_job()], connection=connection)
    connection.execute("INSERT INTO orders VALUES ('second')")
    assert store.count(EVERYTHING) == 0
    connection.execute(ending)
    is_kept = ending == "COMMIT"
    assert store.count(EVERYTHING) == int(is_kept)
    assert orders(connect) == 2 * is_kept
    if is_kept:
        assert store.get(answer.id).state is JobState.RUNNABLE


def test_without_an_open_transaction_the_connections_mode_decides(
    store, connection, options
):
    """Autocommit stores at once; the others wait for the caller's commit."""
    store.enqueue([new_job()], connection=connection)
    commits = "isolation_level" in options and options["isolation_level"] is None
    if commits or options.get("autocommit"):
        assert not connection.in_transaction
    else:
        assert connection.in_transaction
        assert store.count(EVERYTHING) == 0
        connection.commit()
    assert store.count(EVERYTHING) == 1


@pytest.mark.parametrize(
    "text_factory",
    [bytes, str.upper, lambda raw: object()],
    ids=["bytes", "upper", "x"],
)
@pytest.mark.parametrize("row_factory", [sqlite3.Row, lambda cursor, row: {}])
def test_the_callers_factories_do_not_matter(store, connect, text_factory, row_factory):
    """And they are the same afterwards."""
    connection = connect()
    if text_factory is str.upper:
        text_factory = lambda raw: raw.decode().upper()  # noqa: E731 - a case's value
    connection.row_factory, connection.text_factory = row_factory, text_factory
    (first,) = store.enqueue([new_job(key="k", unique="u")])
    by_key, by_unique, fresh = store.enqueue(
        [new_job(key="k"), new_job(unique="u"), new_job()], connection=connection
    )
    assert (by_key, by_unique) == (by_key.__class__(first.id, False, "runnable"),) * 2
    assert fresh.created
    assert connection.row_factory is row_factory
    assert connection.text_factory is text_factory
    connection.commit()
    assert store.payload(fresh.id) == b"{}"


def test_converters_of_the_caller_do_not_matter(store, connect):
    """Even one for INTEGER, the type of our columns."""
    sqlite3.register_converter("INTEGER", lambda raw: "spoilt")
    try:
        connection = connect(detect_types=sqlite3.PARSE_DECLTYPES)
        (first,) = store.enqueue([new_job(key="k")])
        again, fresh = store.enqueue(
            [new_job(key="k"), new_job()], connection=connection
        )
        assert (again.id, fresh.id) == (first.id, first.id + 1)
    finally:
        sqlite3.register_converter("INTEGER", int)


def test_a_refusal_leaves_the_callers_transaction_as_it_was(store, connection):
    """Its row can still be committed; none of our jobs is there."""
    store.enqueue([new_job(key="k")])
    begin(connection)
    connection.execute("INSERT INTO orders VALUES ('mine')")
    with pytest.raises(KeyConflict):
        store.enqueue(
            [new_job()] * 1500 + [new_job(key="k", payload=b"2")], connection=connection
        )
    connection.execute("COMMIT")
    assert store.count(EVERYTHING) == 1
    assert connection.execute("SELECT count(*) FROM orders").fetchone()[0] == 1


def test_a_refusal_leaves_no_transaction_behind(store, connection, options):
    """If none was open before, none is open after."""
    was_open = connection.in_transaction
    store.enqueue([new_job(key="k")])
    with pytest.raises(KeyConflict):
        store.enqueue([new_job(key="k", payload=b"2")], connection=connection)
    assert connection.in_transaction == was_open


def test_a_connection_to_another_file_is_refused(store, connect, tmp_path):
    """Its jobs would be in a queue that no supervisor reads."""
    with pytest.raises(UsageError, match="only a connection to the same file"):
        store.enqueue([new_job()], connection=connect(database=tmp_path / "other.db"))
    with pytest.raises(UsageError, match="a database in memory"):
        store.enqueue([new_job()], connection=connect(database=":memory:"))
    attached = connect(database=":memory:")
    attached.execute("ATTACH ? AS jobs", (str(tmp_path / "jobs.db"),))
    with pytest.raises(UsageError, match="same file"):
        store.enqueue([new_job()], connection=attached)


def test_a_symbolic_link_is_the_same_file(store, connect, tmp_path, database_path):
    """Files are compared, not names."""
    link = tmp_path / "link.db"
    link.symlink_to(database_path)
    connection = connect(database=link)
    store.enqueue([new_job()], connection=connection)
    connection.commit()
    assert store.count(EVERYTHING) == 1


@pytest.mark.parametrize("thing", [object(), "sqlite:///jobs.db", 5])
def test_an_object_that_is_no_connection_is_refused(store, thing):
    """The error says what was given and what was expected."""
    with pytest.raises(UsageError, match=r"expected a sqlite3\.Connection"):
        store.enqueue([new_job()], connection=thing)


def test_a_closed_connection_is_refused(store, connect):
    """With a clear error, not a ProgrammingError."""
    connection = connect()
    connection.close()
    with pytest.raises(UsageError, match="closed"):
        store.enqueue([new_job()], connection=connection)
    with (
        pytest.raises(UsageError, match="closed"),
        store.caller_transaction(connection),
    ):
        pass


def test_a_connection_of_another_thread_is_refused(store, connect):
    """SQLite's own check is passed on."""
    connection = connect()
    errors = []

    def use():
        try:
            store.enqueue([new_job()], connection=connection)
        except UsageError as error:
            errors.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "thread" in errors[0]


def test_a_read_only_connection_is_refused(store, connect, database_path):
    """Nothing was stored and no transaction stays open."""
    connection = connect(database=f"file:{database_path}?mode=ro", uri=True)
    with pytest.raises(UsageError, match="read-only"):
        store.enqueue([new_job()], connection=connection)
    assert not connection.in_transaction
    assert store.count(EVERYTHING) == 0


def test_a_transaction_of_the_callers_begins_and_ends(store, connection, connect):
    """Committed with everything in it."""
    if connection.in_transaction:
        pytest.skip("autocommit=False is always in a transaction")
    with store.caller_transaction(connection):
        connection.execute("INSERT INTO orders VALUES ('mine')")
        store.enqueue([new_job()], connection=connection)
        assert store.count(EVERYTHING) == 0
    assert not connection.in_transaction
    assert (orders(connect), store.count(EVERYTHING)) == (1, 1)


def test_an_error_rolls_the_callers_transaction_back(store, connection, connect):
    """Row and job are gone, and the next transaction can begin."""
    if connection.in_transaction:
        pytest.skip("autocommit=False is always in a transaction")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), store.caller_transaction(connection):  # noqa: PT012 - all of it is the case
            connection.execute("INSERT INTO orders VALUES ('mine')")
            store.enqueue([new_job()], connection=connection)
            raise ZeroDivisionError
    assert not connection.in_transaction
    assert (orders(connect), store.count(EVERYTHING)) == (0, 0)


def test_a_caller_may_end_the_transaction_itself(store, connect):
    """Then nothing is left to commit."""
    connection = connect(isolation_level=None)
    with store.caller_transaction(connection):
        store.enqueue([new_job()], connection=connection)
        connection.execute("ROLLBACK")
    assert store.count(EVERYTHING) == 0


def test_a_transaction_that_is_open_already_is_refused(store, connect):
    """The writers' lock comes first, or two programs wait for each other."""
    connection = connect()
    connection.execute("BEGIN")
    with (
        pytest.raises(UsageError, match="already open on it"),
        store.caller_transaction(connection),
    ):
        pass
    assert connection.in_transaction


def test_forgetting_the_connection_in_a_transaction_is_an_error_at_once(store, connect):
    """Waiting for one's own lock would never end."""
    connection = connect()
    with store.caller_transaction(connection):
        with pytest.raises(UsageError, match="already in a transaction"):
            store.enqueue([new_job()])
        assert store.count(EVERYTHING) == 0  # Reading is fine.
        store.enqueue([new_job()], connection=connection)
    assert store.count(EVERYTHING) == 1


def test_others_wait_for_the_callers_transaction(store, connect):
    """It holds the writers' lock, so they wait in line instead of failing."""
    connection = connect()
    done = threading.Event()

    def produce():
        store.enqueue([new_job()])
        done.set()

    thread = threading.Thread(target=produce)
    with store.caller_transaction(connection):
        thread.start()
        store.enqueue([new_job()], connection=connection)
        assert not done.wait(0.05)
    thread.join()
    assert store.count(EVERYTHING) == 2


def test_a_replaced_file_fails_the_callers_commit(store, connect, database_path):
    """The row would go into a file that no process opens."""
    connection = connect()
    connection.execute("CREATE TABLE orders (name TEXT)")
    with (  # noqa: PT012 - the error comes on leaving
        pytest.raises(StoreUnavailable, match="replaced"),
        store.caller_transaction(connection),
    ):
        store.enqueue([new_job()], connection=connection)
        database_path.rename(database_path.with_name("away.db"))
    assert not connection.in_transaction
    database_path.with_name("away.db").rename(database_path)
    assert store.count(EVERYTHING) == 0


def test_jobs_on_a_callers_connection_run_like_others(store, connect):
    """From lease to result."""
    connection = connect()
    with store.caller_transaction(connection):
        (answer,) = store.enqueue([new_job(payload=b"\xff")], connection=connection)
    granted = lease_one(store)
    assert (granted.id, granted.payload) == (answer.id, b"\xff")
    assert store.settle([succeeded(granted)]) == [True]
