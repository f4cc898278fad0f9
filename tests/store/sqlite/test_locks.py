"""Many writers on one file: they wait in line, none fails, nothing is lost."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jobpool.errors import StoreUnavailable, UsageError
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from jobpool.store.sqlite.connection import (
    connect,
    contention,
    file_lock,
    record_lock,
    write_lock,
)
from support.store.lock_files import holding, is_taken
from support.store.storing import lease, new_job, succeeded
from support.waiting import wait_until

EVERYTHING = Filter()
PRODUCERS = 8
JOBS = 100


PRODUCE = """
import sys
from jobpool.core.jobs.job import NewJob
from jobpool.store.opening import open_store
store = open_store(sys.argv[1])
for place in range(int(sys.argv[3])):
    payload = f"{sys.argv[2]}.{place}".encode()
    store.enqueue([NewJob(kind="shop.thumbnail", pool="cpu", payload=payload)])
store.close()
"""


def test_producers_in_many_processes_never_meet_a_locked_database(
    store, store_url, by_hand
):
    """While a supervisor leases and settles, every accepted job is there."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PRODUCE, store_url, str(number), str(JOBS)]
        )
        for number in range(PRODUCERS)
    ]
    done = 0

    def all_done():
        nonlocal done
        leases = lease(store, limit=50)
        done += sum(store.settle([succeeded(one) for one in leases]))
        return done == PRODUCERS * JOBS or all(
            process.poll() is not None for process in processes
        )

    wait_until(all_done, 100, "the producers have ended or all jobs are settled")
    assert [process.wait(100) for process in processes] == [0] * PRODUCERS
    while leases := lease(store, limit=50):
        done += sum(store.settle([succeeded(one) for one in leases]))
    assert done == PRODUCERS * JOBS
    payloads = by_hand.execute("SELECT DISTINCT payload FROM jobpool_payloads")
    assert len(payloads.fetchall()) == PRODUCERS * JOBS
    assert by_hand.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_process_has_one_descriptor_of_the_lock_file(store_factory, database_path):
    """Closing a second one would drop the first one's lock."""

    def descriptors():
        links = []
        for fd in Path("/proc/self/fd").iterdir():
            try:
                links.append(fd.readlink())
            except FileNotFoundError:
                continue
        return links.count(Path(f"{database_path}{write_lock.SUFFIX}"))

    stores = [store_factory() for _ in range(3)]
    for store in stores:
        store.enqueue([new_job()])
    assert descriptors() == 1
    for store in stores[:2]:
        store.close()
    assert descriptors() == 1
    stores[2].close()
    assert descriptors() == 0


@pytest.fixture
def holder(store, lock_file):
    """Another process that holds the writers' lock."""
    with holding(lock_file) as process:
        yield process


def test_a_writer_waits_for_the_lock(store, holder):
    """And continues as soon as it is free."""
    done = threading.Event()

    def write():
        store.enqueue([new_job()])
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert not done.wait(0.05)
    holder.stdin.close()
    thread.join(60)
    assert done.is_set()


@pytest.fixture
def impatience(monkeypatch):
    """A writer that waits for only 10 ms."""
    with monkeypatch.context() as patch:
        patch.setattr(write_lock, "WAIT_S", 0.01)
        yield patch


def test_a_wait_for_the_lock_is_bounded(store, holder, impatience):
    """A stopped process must not stop every other one; reading still works."""
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="another process has held"):
            store.enqueue([new_job()])
    assert store.count(EVERYTHING) == 0
    impatience.undo()
    holder.stdin.close()
    store.enqueue([new_job()])
    assert store.count(EVERYTHING) == 1


def test_a_caller_that_timed_out_keeps_no_lock(store, holder, lock_file, impatience):
    """A lock that arrives too late is released at once."""
    with pytest.raises(StoreUnavailable):
        store.enqueue([new_job()])
    impatience.undo()
    assert is_taken(lock_file)
    holder.stdin.close()
    wait_until(lambda: not is_taken(lock_file), 30, "the lock is free")
    store.enqueue([new_job()])


def test_a_lock_that_arrives_too_late_is_released_before_its_file_may_be_closed(
    store, holder, impatience, monkeypatch
):
    """Its number may be that of another file by then, such as another lock's."""
    lock, drop, awaited = store._database.writers._record, file_lock.drop, []

    def note(fd):
        awaited.append(lock.is_awaited)
        drop(fd)

    monkeypatch.setattr(file_lock, "drop", note)
    with pytest.raises(StoreUnavailable):
        store.enqueue([new_job()])
    holder.stdin.close()
    wait_until(lambda: not lock.is_awaited, 30, "the helper has ended")
    assert awaited == [True]


def test_closing_the_store_does_not_disturb_a_waiting_thread(tmp_path):
    """The file stays open for it, and the next user gets the same lock."""
    (tmp_path / "jobs.db").touch()
    path = str(tmp_path / "jobs.db")
    lock = write_lock.share_lock(path)
    with lock.held():
        pass
    with holding(f"{path}{write_lock.SUFFIX}"):
        with pytest.raises(StoreUnavailable), lock.held(0.01):
            pass
        write_lock.return_lock(lock, path)
        assert write_lock.share_lock(path) is lock
    with lock.held():
        pass
    write_lock.return_lock(lock, path)
    after = write_lock.share_lock(path)
    assert after is not lock
    write_lock.return_lock(after, path)


def test_an_interrupted_wait_takes_no_lock(store, holder, lock_file):
    """Ctrl-C while waiting: the lock is not taken afterwards."""
    lock = store._database.writers._record

    class Interrupted(threading.Event):
        def wait(self, timeout=None):
            raise KeyboardInterrupt

    helper = record_lock._Helper(lock, lock._fd)
    helper.is_done = Interrupted()
    helper.start()
    lock._helper = helper
    with pytest.raises(KeyboardInterrupt):
        store.enqueue([new_job()])
    holder.stdin.close()
    wait_until(lambda: not lock.is_awaited, 30, "the helper has ended")
    assert not is_taken(lock_file)
    store.enqueue([new_job()])


def test_threads_wait_for_the_lock_too(tmp_path):
    """Until its patience ends; then the error names the lock's holder."""
    (tmp_path / "jobs.db").touch()
    lock = write_lock.share_lock(str(tmp_path / "jobs.db"))
    messages = []

    def write():
        try:
            with lock.held(0.01):
                pass
        except StoreUnavailable as error:
            messages.append(str(error))

    with lock.held():
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        with pytest.raises(UsageError, match="already in a transaction"), lock.held():
            pass
    assert "another thread of this process" in messages[0]
    with lock.held():
        pass
    write_lock.return_lock(lock, str(tmp_path / "jobs.db"))


def test_a_lock_file_that_was_removed_is_made_again(store, lock_file):
    """The others lock a new file: the old one would exclude no process."""
    store.enqueue([new_job()])
    lock_file.unlink()
    store.enqueue([new_job()])
    assert lock_file.exists()
    with store.transaction():
        assert is_taken(lock_file)
    assert not is_taken(lock_file)


def test_a_lock_file_that_cannot_be_opened_is_refused(tmp_path):
    """The error says which file, and what to do."""
    (tmp_path / "jobs.db").touch()
    (tmp_path / f"jobs.db{write_lock.SUFFIX}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable, match=r"lock file .* cannot be used"):
        open_store(f"sqlite:///{tmp_path}/jobs.db")


def test_another_programs_transaction_is_waited_for_and_then_reported(
    store_factory, by_hand, monkeypatch
):
    """Other programs do not use the writers' lock: SQLite's own timeout applies."""
    monkeypatch.setattr(connect, "BUSY_TIMEOUT_S", 0.02)
    monkeypatch.setattr(contention, "_LOCKS", Path("/nowhere"))  # whose it is
    store = store_factory()
    by_hand.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another program holds a transaction"):
        store.enqueue([new_job()])
    by_hand.execute("ROLLBACK")
    store.enqueue([new_job()])
    assert store.count(EVERYTHING) == 1


def test_readers_do_not_wait_for_writers(store_factory):
    """Nor the other way round."""
    first, second = store_factory(), store_factory()
    first.enqueue([new_job()])
    with first.transaction():
        first.enqueue([new_job()])
        assert second.count(EVERYTHING) == 1


def test_a_helper_thread_that_cannot_start_blocks_no_later_call(
    store, holder, monkeypatch
):
    """Without a thread to wait with it is unavailable; the next caller tries anew."""

    def no_thread(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(record_lock._Helper, "start", no_thread)
        with pytest.raises(StoreUnavailable, match="can't start new thread"):
            store.enqueue([new_job()])
    holder.stdin.close()
    assert [job.created for job in store.enqueue([new_job()])] == [True]
