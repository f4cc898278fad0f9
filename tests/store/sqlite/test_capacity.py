"""What a file has room for, and the plain word when it is outgrown."""

import errno
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from jobpool.errors import StoreUnavailable
from jobpool.store.records.operating import Filter
from jobpool.store.sqlite import capacity
from jobpool.store.sqlite.connection.session import Session
from jobpool.store.sqlite.connection.write_lock import return_lock, share_lock
from support.store.storing import begin_run

EIB = 2**60


@pytest.fixture(autouse=True)
def few_looks(monkeypatch):
    """Look seldom, and let a busy machine take its time: to read the indexes, too."""
    monkeypatch.setattr(capacity, "LOOKS", 20)
    monkeypatch.setattr(capacity, "HELD_S", 0.01)
    monkeypatch.setattr(capacity, "INDEX_S_MAX", 600.0)


def facts_of(store, memory_bytes=EIB):
    return {one.name: one for one in store.capacity(memory_bytes)}


def test_a_full_disk_is_said_not_raised_as_a_bug(store, monkeypatch):
    """`jobpool doctor` is what people call then."""

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdatasync", full)
    said = r"nothing can be written to .* \(No space left on device\).*make room"
    with pytest.raises(StoreUnavailable, match=said):
        facts_of(store)


@pytest.fixture
def busy_writer(store, database_path):
    """Somebody who holds the writers' lock nearly all of the time."""
    ends, lock = threading.Event(), share_lock(str(database_path))

    def write():
        while not ends.is_set():
            with lock.held():
                time.sleep(0.03)
            time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    yield
    ends.set()
    writer.join()
    return_lock(lock, str(database_path))


def test_an_idle_file_is_the_right_one(store, database_path):
    """Every figure is there, and nothing is wrong with any."""
    begin_run(store, "own", host=socket.gethostname())
    store.end_run("run-1")
    facts = facts_of(store)
    assert list(facts) == ["files", "indexes", "commit", "writers_lock", "sqlite"]
    assert facts["files"].figures["file_bytes"] == Path(database_path).stat().st_size
    indexes = facts["indexes"].figures
    assert indexes.pop("bytes") == sum(indexes.values())
    assert indexes["jobpool_jobs_dead"] > 0
    assert (
        0 < facts["commit"].figures["sync_s"] <= facts["commit"].figures["sync_max_s"]
    )
    assert facts["writers_lock"].figures["wait_s"] > 0
    assert facts["sqlite"].seen == "is enough for this queue"
    assert facts["sqlite"].concern is None


def test_nothing_is_written_to_find_out(store, open_one, database_path):
    """Neither into the queue nor beside it."""
    other = open_one()
    other.changed()
    before = sorted(Path(database_path).parent.iterdir())
    store.capacity(EIB)
    assert not other.changed()
    assert sorted(Path(database_path).parent.iterdir()) == before
    other.close()


@pytest.mark.usefixtures("busy_writer")
def test_a_lock_that_is_mostly_taken_means_outgrown(store, monkeypatch):
    """A writer waits for it as long as its holders keep it."""
    # On a busy machine the holder itself may have to wait.
    monkeypatch.setattr(capacity, "HELD_SHARE_MAX", 0.2)
    facts = facts_of(store)
    assert facts["writers_lock"].figures["held_share"] > capacity.HELD_SHARE_MAX
    assert facts["writers_lock"].figures["wait_max_s"] > 0.005
    assert facts["sqlite"].seen == "outgrown"
    assert "its one lock for writers is taken" in facts["sqlite"].concern
    assert "jobpool move --to postgresql://" in facts["sqlite"].concern


def test_indexes_larger_than_the_memory_mean_outgrown(store):
    """They are named with both sizes."""
    begin_run(store, "own", host=socket.gethostname())
    store.end_run("run-1")
    size = int(facts_of(store)["indexes"].figures["bytes"])
    assert facts_of(store, size)["sqlite"].concern is None
    concern = facts_of(store, size - 1)["sqlite"].concern
    assert concern.startswith("its indexes (")
    assert "are larger than the memory here" in concern


def test_supervisors_of_other_hosts_mean_outgrown(store):
    """Whatever made that possible: the locks of a file are one machine's."""
    begin_run(store, "far", host="elsewhere")
    assert "other hosts are open in it (elsewhere" in facts_of(store)["sqlite"].concern


def test_a_network_file_system_means_outgrown(store, monkeypatch):
    """It was forced to be accepted."""
    monkeypatch.setattr(capacity, "filesystem_of", lambda _: "nfs4")
    concern = facts_of(store)["sqlite"].concern
    assert "a file system for several machines (nfs4)" in concern


def test_without_dbstat_the_size_of_the_file_says_it(store, monkeypatch):
    """The indexes are unknown; they may be as large."""
    usual = Session.value

    def without(session, name, /, **parameters):
        return 0 if name == "has_dbstat" else usual(session, name, **parameters)

    monkeypatch.setattr(Session, "value", without)
    facts = facts_of(store, 1)
    assert facts["indexes"].seen == "unknown: this SQLite was built without dbstat"
    assert "and its indexes may be" in facts["sqlite"].concern


def test_large_indexes_are_read_for_a_while_only(store, monkeypatch):
    """What could not be read in time is not guessed; the connection works on."""
    monkeypatch.setattr(capacity, "INDEX_S_MAX", -1.0)
    monkeypatch.setattr(capacity, "_STEPS", 1)
    indexes = facts_of(store)["indexes"]
    assert indexes.seen.startswith("0 of ")
    assert "bytes" not in indexes.figures
    assert store.count(Filter()) == 0


@pytest.mark.parametrize(
    ("bound", "name", "remedy"),
    [
        ("LOG_BYTES_MAX", "files", "a reader keeps a transaction open"),
        ("SYNC_S_MAX", "commit", "use a faster disk, and enqueue in bulk"),
    ],
)
def test_what_is_over_its_bound_says_what_to_do(
    store, monkeypatch, bound, name, remedy
):
    """With what was expected; within it there is nothing to say."""
    monkeypatch.setattr(capacity, bound, -1)
    concern = facts_of(store)[name].concern
    assert concern.startswith("expected ")
    assert remedy in concern
    monkeypatch.setattr(capacity, bound, EIB)
    assert facts_of(store)[name].concern is None
