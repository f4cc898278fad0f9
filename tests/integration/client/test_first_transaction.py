"""Jobs in a transaction that began before the store's tables existed.

Also jobs beside it, which would wait for it: a wait that could never end is refused.
"""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import psycopg
import pytest

from jobpool import JobPool, JobpoolBug, KeyConflict, StoreUnavailable, UsageError
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from jobpool.store.sqlite.connection import connect, contention, write_lock
from jobpool.store.statements.named_sql import load_migrations
from support.postgres.server import libpq_url, server


@pytest.fixture
def path(tmp_path):
    """An application's database, without a queue."""
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (id)")
    connection.close()
    return path


@pytest.fixture
def jobs(path):
    jobs = JobPool(f"sqlite:///{path}")
    yield jobs
    jobs.close()


@pytest.fixture
def work(jobs):
    return jobs.job("cpu", kind="work")(lambda number: number)


@pytest.fixture
def patiently(monkeypatch):
    """Wait for others, though this machine may stand still meanwhile."""
    monkeypatch.setattr(connect, "BUSY_TIMEOUT_S", 90.0)
    monkeypatch.setattr(write_lock, "WAIT_S", 90.0)


@pytest.fixture(
    params=["immediate", "deferred", "after a read", "by the driver", "wal"]
)
def connection(request, path):
    """A connection of the caller's, in a transaction."""
    by_driver = request.param == "by the driver"
    connection = sqlite3.connect(path, isolation_level="" if by_driver else None)
    connection.text_factory = bytes
    connection.row_factory = sqlite3.Row
    if request.param == "wal":
        connection.execute("PRAGMA journal_mode = WAL")
    if not by_driver:
        how = "IMMEDIATE" if request.param in ("immediate", "wal") else ""
        connection.execute(f"BEGIN {how}")
    if request.param == "after a read":
        connection.execute("SELECT * FROM orders").fetchall()
    else:
        connection.execute("INSERT INTO orders VALUES (1)")
    yield connection
    connection.close()


def stored(path):
    """Return what others see: the number of jobs, the schema and the journal mode."""
    store = open_store(f"sqlite:///{path}", create=False)
    count, facts = store.count(Filter()), store.describe()
    store.close()
    return count, facts["schema_version"], facts["journal_mode"]


def test_the_tables_are_made_within_the_callers_transaction(path, work, connection):
    """They and the jobs exist once it commits."""
    bound = work.options(connection=connection)
    assert bound.enqueue(1).created
    assert bound.enqueue(2).created
    connection.commit()
    newest = str(len(load_migrations("sqlite")))
    assert stored(path) == (2, newest, "wal")
    job = work.enqueue(3)
    assert (job.id, job.state) == (3, "runnable")
    connection.execute("BEGIN")
    assert bound.enqueue(4).id == 4
    connection.commit()


def test_the_tables_vanish_with_the_callers_transaction(path, work, connection):
    """The next transaction makes them, and so does anything that opens the store."""
    bound = work.options(connection=connection)
    bound.enqueue(1)
    connection.rollback()
    names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert [row[0] for row in names] == [b"orders"]
    connection.execute("BEGIN")
    assert bound.enqueue(2).id == 1
    connection.rollback()
    assert work.enqueue(3).id == 1
    assert stored(path)[0] == 1


def test_a_refused_job_leaves_the_transaction_as_it_was(path, work, connection):
    """Tables made by an earlier job stay; an error undoes only its own part."""
    bound = work.options(connection=connection, key="k")
    bound.enqueue(1)
    with pytest.raises(KeyConflict):
        bound.enqueue(2)
    connection.commit()
    assert stored(path)[0] == 1


@pytest.mark.usefixtures("patiently")
def test_a_store_opened_meanwhile_waits_and_finds_the_tables(path, work, connection):
    """It does not make them a second time."""
    work.options(connection=connection).enqueue(1)
    seen = []
    other = threading.Thread(target=lambda: seen.append(stored_by_opening(path)))
    other.start()
    other.join(0.4)
    assert other.is_alive()
    connection.commit()
    other.join(60)
    assert seen == [1]


def stored_by_opening(path):
    store = open_store(f"sqlite:///{path}")
    count = store.count(Filter())
    store.close()
    return count


def test_after_a_failed_step_the_schema_cannot_be_edited(path, work, monkeypatch):
    """The caller still uses the connection."""
    broken = "PRAGMA writable_schema = ON;\nCREATE TABLE orders (id);\n"
    monkeypatch.setattr(
        connect,
        "load_migrations",
        lambda database: (*load_migrations(database), broken),
    )
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    with pytest.raises(JobpoolBug, match="already exists"):
        work.options(connection=connection).enqueue(1)
    assert connection.execute("PRAGMA writable_schema").fetchone() == (0,)
    connection.close()


def test_an_older_schema_is_migrated_within_the_callers_transaction(path, work):
    """Enqueueing migrates it, as opening would."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(load_migrations("sqlite")[0])
    connection.execute(
        "INSERT INTO jobpool_meta (name, value) VALUES ('schema_version', 1)"
    )
    connection.execute("BEGIN IMMEDIATE")
    assert work.options(connection=connection).enqueue(1).created
    connection.execute("COMMIT")
    connection.close()
    assert stored(path)[:2] == (1, str(len(load_migrations("sqlite"))))


# -- beside it ---

PATIENTLY = """
from jobpool.store.sqlite.connection import connect, write_lock
connect.BUSY_TIMEOUT_S = write_lock.WAIT_S = 90.0
"""
"""So that a wait is told from a slow machine."""
PROGRAM = """
import sqlite3, sys, threading, time
from jobpool import JobPool
jobs = JobPool("sqlite:///" + sys.argv[1])
work = jobs.job("cpu", kind="work")(lambda number: number)
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
if sys.argv[2] == "wal":
    connection.execute("PRAGMA journal_mode = WAL")
if sys.argv[3] == "tables":
    work.enqueue(0)
connection.execute("BEGIN IMMEDIATE")
connection.execute("INSERT INTO orders VALUES (1)")
began_s = time.monotonic()
try:
    work.enqueue(1)
except Exception as exc:
    print(type(exc).__name__, exc)
print(time.monotonic() - began_s < 60)
connection.execute("COMMIT")
print(work.enqueue(2).created)
jobs.close()
"""
DJANGO = """
import sys, time
from django.conf import settings
settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}})
from django.db import connection, transaction
from jobpool import JobPool
jobs = JobPool("sqlite:///" + sys.argv[1])
work = jobs.job("cpu", kind="work")(lambda number: number)
began_s = time.monotonic()
with transaction.atomic():
    connection.cursor().execute("INSERT INTO orders VALUES (1)")
    try:
        work.enqueue(1)
    except Exception as exc:
        print(type(exc).__name__, exc)
    job = work.options(connection=connection).enqueue(2)
    transaction.on_commit(lambda: work.enqueue(3))
print(time.monotonic() - began_s < 60)
print(job.created and job.state == "runnable")
jobs.close()
"""


@pytest.mark.parametrize(
    ("program", "journal", "tables"),
    [
        (PROGRAM, "wal", ""),
        (PROGRAM, "wal", "tables"),
        (PROGRAM, "delete", ""),
        (DJANGO, "", ""),
    ],
    ids=["no tables", "tables", "no log", "django"],
)
def test_waiting_for_ones_own_transaction_is_refused_at_once(
    path, program, journal, tables
):
    """Not after all of the usual wait, and not as another program's fault."""
    run = subprocess.run(
        [sys.executable, "-c", PATIENTLY + program, path, journal, tables],
        capture_output=True,
        text=True,
        check=True,
    )
    refused, in_time, goes_on = run.stdout.splitlines()
    assert refused.startswith("UsageError this thread has a transaction open")
    assert ".options(connection=...)" in refused
    assert "transaction.on_commit" in refused
    assert (in_time, goes_on) == ("True", "True")


@pytest.mark.usefixtures("patiently")
def test_another_threads_transaction_is_waited_for(path, work):
    """It ends by itself."""
    work.enqueue(0)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    done = threading.Timer(0.4, lambda: connection.execute("COMMIT"))
    done.start()
    assert work.enqueue(1).created
    done.join()
    connection.close()


def test_another_threads_transaction_is_named_when_it_does_not_end(
    path, work, monkeypatch
):
    """The error names this process's transaction, not another program's."""
    monkeypatch.setattr(connect, "BUSY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()] * 2)
    work.enqueue(0)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another connection of this process"):
        work.enqueue(1)
    connection.close()
    assert work.enqueue(2).created


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_the_holder_of_the_write_lock_is_found(path, journal):
    """In this process or another: readers do not count."""
    held = contention.holds_write_lock
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    assert not held(str(path))
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM orders").fetchall()
    assert not held(str(path))
    connection.execute("INSERT INTO orders VALUES (1)")
    assert held(str(path))
    where = "jobpool.store.sqlite.connection.contention"
    ask = f"import sys; from {where} import holds_write_lock"
    other = subprocess.run(
        [sys.executable, "-c", f"{ask}; print(holds_write_lock(sys.argv[1]))", path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout == "False\n"
    connection.execute("COMMIT")
    assert not held(str(path))
    connection.close()


def test_a_transaction_that_read_too_early_is_told_so(path, work):
    """No other transaction is to blame: this one must be begun anew."""
    work.enqueue(0)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM orders").fetchall()
    work.enqueue(1)
    with pytest.raises(StoreUnavailable, match="began by reading"):
        work.options(connection=connection).enqueue(2)
    connection.execute("ROLLBACK")
    assert work.options(connection=connection).enqueue(2).created
    connection.close()


# -- PostgreSQL ---


@pytest.mark.parametrize("level", psycopg.IsolationLevel)
def test_on_postgresql_the_tables_are_made_beside_the_transaction(level):
    """The caller's transaction sees them, unless its snapshot is older."""
    url = server().fresh_url()
    jobs = JobPool(url)
    work = jobs.job("cpu", kind="work")(lambda number: number)
    with psycopg.connect(libpq_url(url)) as connection:
        connection.isolation_level = level
        connection.execute("CREATE TEMP TABLE orders (id int)")
        bound = work.options(connection=connection)
        if level <= psycopg.IsolationLevel.READ_COMMITTED:
            assert bound.enqueue(1).id == 1
        else:
            with pytest.raises(UsageError, match="began before the queue"):
                bound.enqueue(1)
            connection.rollback()
            assert bound.enqueue(1).id == 1
        connection.commit()
    assert work.enqueue(2).id == 2
    jobs.close()
    server().drop(url)


def test_an_asynchronous_enqueue_joins_the_transaction_that_is_open(tmp_path):
    """Of jobs and of flows, from another thread, without a deadlock."""
    path = tmp_path / "queue.db"
    jobs = JobPool(f"sqlite:///{path}")

    @jobs.job("cpu", kind="add")
    def add(a: int) -> int:
        return a

    async def order(connection):
        flow = jobs.flow("sums")
        flow.add(add.call(flow.add(add.call(1)).value))
        with jobs.transaction(connection):
            job = await add.options(connection=connection).enqueue_async(0)
            run = await flow.enqueue_async(connection=connection)
            if connection.in_transaction and not left:
                left.append((job.id, run.id))
                raise ZeroDivisionError
        return job, run

    left = []
    with closing(
        sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    ) as connection:
        add.enqueue(0)
        with pytest.raises(ZeroDivisionError):
            asyncio.run(order(connection))
        job, run = asyncio.run(order(connection))
    assert left == [(job.id, run.id)], "what was rolled back has left nothing"
    assert (job.info().state, run.state) == ("runnable", "open")
    jobs.close()


def test_an_asynchronous_enqueue_beside_a_transaction_is_refused(tmp_path):
    """Of jobs and of flows, in the thread that has the transaction."""
    path = tmp_path / "queue.db"
    jobs = JobPool(f"sqlite:///{path}")

    @jobs.job("cpu", kind="add")
    def add(a: int) -> int:
        return a

    add.enqueue(0)
    flow = jobs.flow("sums")
    flow.add(add.call(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for enqueue in (lambda: add.enqueue_async(1), flow.enqueue_async):
            with (
                jobs.transaction(connection),
                pytest.raises(UsageError, match="would wait for that transaction"),
            ):
                asyncio.run(enqueue())
    jobs.close()
