"""Full or broken disks: refused as a whole, usable afterwards, with our own errors."""

import os
import shutil
import sqlite3
import subprocess

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.admission import Admission
from jobpool.errors import (
    JobpoolBug,
    QueueFull,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from jobpool.store.sqlite.connection.errors import explain
from jobpool.store.sqlite.connection.session import Session
from jobpool.store.sqlite.store import wal_reset_verdict
from jobpool.store.statements.integrity import RowRefused
from support.store.flows import step, store_flow
from support.store.storing import begin_run, lease, new_job, succeeded

EVERYTHING = Filter()
BIG = b'"' + b"x" * 100_000 + b'"'


@pytest.fixture
def limit_pages(store):
    """Stop the database file's growth, or allow it again."""
    connection = store._database._session.connection

    def limit(pages=None):
        (count,) = connection.execute("PRAGMA page_count").fetchone()
        wanted = pages if pages is not None else count
        connection.execute(f"PRAGMA max_page_count = {wanted}")

    return limit


def test_a_full_database_refuses_an_enqueue_as_a_whole(store, limit_pages):
    """Nothing of the batch is stored; once there is room it is."""
    store.enqueue([new_job()])
    limit_pages()
    with pytest.raises(StoreFull, match="no room on its disk; make room"):
        store.enqueue([new_job(), new_job(payload=BIG)])
    assert store.count(EVERYTHING) == 1
    limit_pages(10**6)
    store.enqueue([new_job(), new_job(payload=BIG)])
    assert store.count(EVERYTHING) == 3


def test_a_full_database_loses_no_settlement(store, limit_pages):
    """It is refused, the lease stands, and the same settlement works later."""
    store.enqueue([new_job()])
    (granted,) = lease(store)
    settlement = succeeded(granted, BIG)
    limit_pages()
    for _ in range(2):
        with pytest.raises(StoreFull):
            store.settle([settlement])
        assert store.get(granted.id).state is JobState.LEASED
    limit_pages(10**6)
    assert store.settle([settlement]) == [True]
    assert store.get(granted.id).result == BIG


def test_a_transaction_that_sqlite_rolled_back_commits_nothing(store, limit_pages):
    """Although its error was caught and other methods came after it."""
    store.enqueue([new_job()])
    limit_pages()
    with pytest.raises(StoreUnavailable), store.transaction():  # noqa: PT012 - all of it is the case
        store.enqueue([new_job(key="k")])
        with pytest.raises(StoreFull):
            store.enqueue([new_job(payload=BIG)])
        store._database._session.connection.execute("ROLLBACK")
        with pytest.raises(StoreUnavailable, match="is already over"):
            store.enqueue([new_job()])
    limit_pages(10**6)
    assert store.count(EVERYTHING) == 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB; only root can make one."""
    place = tmp_path / "small"
    place.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root can mount a small disk")
    run = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", place],
        check=False,
        capture_output=True,
    )
    if run.returncode != 0:
        pytest.skip("this machine does not let root mount")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_refuses_an_enqueue(small_disk):
    """Enqueue is refused; what was accepted is there and can be settled later."""
    store = open_store(f"sqlite:///{small_disk}/jobs.db")
    begin_run(store)
    accepted = []
    with pytest.raises(StoreFull):  # noqa: PT012 - until the disk is full
        for _ in range(100):
            accepted += store.enqueue([new_job(payload=BIG)])
    assert 0 < len(accepted) < 100
    assert store.count(EVERYTHING) == len(accepted)
    ballast = small_disk / "ballast"
    with (  # noqa: PT012 - until the disk is full
        pytest.raises(OSError, match="No space"),
        ballast.open("wb", buffering=0) as file,
    ):
        while True:
            file.write(b"x" * 512)
    with pytest.raises(StoreFull):
        store.enqueue([new_job(payload=BIG)])
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    granted = lease(store)
    assert [one.id for one in granted] == [answer.id for answer in accepted]
    assert all(store.settle([succeeded(one, BIG) for one in granted]))
    store.close()


def fault(code, name, text="something"):
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_IOERR_SHMSIZE, StoreFull),
        (sqlite3.SQLITE_BUSY, StoreUnavailable),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreUnavailable),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailable),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreUnavailable),
        (sqlite3.SQLITE_CANTOPEN, StoreUnavailable),
        (sqlite3.SQLITE_PROTOCOL, StoreUnavailable),
        (sqlite3.SQLITE_CORRUPT, StoreRefused),
        (sqlite3.SQLITE_NOTADB, StoreRefused),
        (sqlite3.SQLITE_CONSTRAINT, RowRefused),
        (sqlite3.SQLITE_CONSTRAINT_CHECK, RowRefused),
        (sqlite3.SQLITE_MISMATCH, RowRefused),
        (sqlite3.SQLITE_TOOBIG, StoreRefused),
        (sqlite3.SQLITE_ERROR, JobpoolBug),
    ],
)
def test_every_code_has_its_error(code, kind):
    """Extended codes as their primary one; the file and the code are named."""
    explained = explain(fault(code, "SQLITE_CODE"), "/var/jobs.db")
    assert type(explained) is kind
    assert "/var/jobs.db" in str(explained)
    assert "SQLITE_CODE" in str(explained)


@pytest.mark.parametrize(
    ("code", "is_replaced"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, True),
        (sqlite3.SQLITE_PROTOCOL, True),
        (sqlite3.SQLITE_READONLY, True),
        (sqlite3.SQLITE_BUSY, False),
    ],
)
def test_the_connection_is_replaced_after_an_io_error(store, code, is_replaced):
    """A commit is never tried again on it: its pages may be marked clean."""
    store.enqueue([new_job()])
    session = store._database._session
    with pytest.raises(StoreUnavailable), store.transaction():  # noqa: PT012 - all of it is the case
        store.enqueue([new_job()])
        error = fault(code, "SQLITE_CODE")
        raise explain(error, session.path) from error
    assert (store._database._session is not session) == is_replaced
    assert store.count(EVERYTHING) == 1
    store.enqueue([new_job()])
    assert store.count(EVERYTHING) == 2


def test_errors_have_sqlites_own_error_as_cause(store_factory, by_hand):
    """For debugging."""
    store = store_factory()
    by_hand.execute("ALTER TABLE jobpool_payloads RENAME TO elsewhere")
    with pytest.raises(JobpoolBug, match="please report") as raised:
        store.enqueue([new_job()])
    assert isinstance(raised.value.__cause__, sqlite3.Error)


def test_errors_show_no_payload(store_factory, by_hand):
    """Whatever SQLite says about its parameters."""
    store = store_factory()
    by_hand.execute("ALTER TABLE jobpool_payloads RENAME TO elsewhere")
    with pytest.raises(JobpoolBug) as raised:
        store.enqueue([new_job(payload=b'"hunter2"')])
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in str(raised.value.__cause__)


def test_a_full_queue_is_not_counted_at_every_refusal(
    store_factory, clock, monkeypatch
):
    """Counting may take at most a tenth of the time."""
    store = store_factory(admission=Admission(depth_max=2))
    store.enqueue([new_job()] * 2)
    counts = []
    plain = Session.value

    def slow(session, name, /, **parameters):
        if name == "count_unfinished":
            counts.append(clock.elapsed_s)
            clock.advance(0.5)
        return plain(session, name, **parameters)

    monkeypatch.setattr(Session, "value", slow)
    for _ in range(20):
        with pytest.raises(QueueFull, match="2 unfinished jobs of at most 2"):
            store.enqueue([new_job()])
        clock.advance(0.5)
    assert counts == [0.0, 5.0, 10.0]


@pytest.mark.parametrize(
    ("version", "is_affected"),
    [
        ((3, 35, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
    ],
)
def test_versions_with_the_wal_reset_bug_are_recognised(version, is_affected):
    """Fixed in 3.51.3, and in two older branches."""
    assert wal_reset_verdict(version).startswith("affected") == is_affected


def test_a_flow_that_is_said_not_to_be_stored_is_not(store, monkeypatch):
    """Whatever its answer needs is read before."""

    def away(*_given):
        raise StoreUnavailable("the file cannot be read")

    with monkeypatch.context() as broken:
        broken.setattr(type(store), "_ref_key", away)
        with pytest.raises(StoreUnavailable):
            store_flow(store, step(0))
    assert store.find(EVERYTHING) == []
    assert store_flow(store, step(0)) > 0
    assert len(store.find(EVERYTHING)) == 1
