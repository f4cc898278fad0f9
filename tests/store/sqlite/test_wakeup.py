"""Waking supervisors never blocks, never fails, and reaches every listener."""

import fcntl
import os
import sqlite3
import threading

import pytest

from jobpool.store.opening import run_root
from jobpool.store.wakeup import Waker
from support.store.storing import new_job
from support.waiting import wait_until


@pytest.fixture
def listen(store_url):
    """Make a supervisor's FIFO; return its reading end."""
    opened = []

    def make(run_id):
        directory = run_root(store_url) / run_id
        directory.mkdir(parents=True)
        os.mkfifo(directory / "wake")
        fd = os.open(directory / "wake", os.O_RDONLY | os.O_NONBLOCK)
        opened.append(fd)
        return fd

    yield make
    for fd in opened:
        os.close(fd)


def heard(fd):
    try:
        return len(os.read(fd, 65536))
    except BlockingIOError:
        return 0


def test_a_wake_up_reaches_every_supervisor(store, listen):
    """Those that come later as well."""
    store.wake()
    first = listen("a")
    store.wake()
    second = listen("b")
    store.wake()
    assert (heard(first), heard(second)) == (2, 1)


def test_a_full_fifo_already_holds_a_wake_up(store, listen):
    """No caller waits for a supervisor that does not read it."""
    fd = listen("a")
    for _ in range(70_000):
        store.wake()
    # Usually 65,536 bytes; less for a user who has many pipes, of whichever program.
    assert heard(fd) == fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    store.wake()
    assert heard(fd) >= 1


def test_a_supervisor_that_is_gone_is_skipped(store, listen, store_url):
    """A FIFO without a reader, a run without a FIFO, a file in the wrong place."""
    fd = listen("a")
    dead = listen("dead")
    store.wake()
    reader = os.dup(fd)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, dead)  # The fixture closes this number.
    os.close(nothing)
    (run_root(store_url) / "empty").mkdir()
    (run_root(store_url) / "file").touch()
    store.wake()
    store.wake()
    assert heard(reader) == 3
    os.close(reader)


def test_a_run_that_ended_is_forgotten(store, listen, store_url):
    """Its descriptor is given back."""
    listen("a")
    store.wake()
    assert len(store._waker._fds) == 1
    (run_root(store_url) / "a" / "wake").unlink()
    (run_root(store_url) / "a").rmdir()
    store.wake()
    assert store._waker._fds == {}


def test_a_link_in_place_of_a_fifo_is_not_followed(tmp_path):
    """A wake-up writes only to FIFOs of supervisors."""
    (tmp_path / "run" / "a").mkdir(parents=True)
    target = tmp_path / "target"
    target.write_bytes(b"")
    (tmp_path / "run" / "a" / "wake").symlink_to(target)
    waker = Waker(tmp_path / "run")
    waker.wake()
    waker.close()
    assert target.read_bytes() == b""


def test_a_callers_transaction_wakes_supervisors_after_its_commit(
    store, listen, database_path
):
    """Not when it was rolled back."""
    fd = listen("a")
    connection = sqlite3.connect(database_path)
    with pytest.raises(ZeroDivisionError), store.caller_transaction(connection):
        raise ZeroDivisionError
    assert heard(fd) == 0
    with store.caller_transaction(connection):
        store.enqueue([new_job()], connection=connection)
        assert heard(fd) == 0
    assert heard(fd) == 1
    connection.close()


def test_threads_may_share_a_waker_while_runs_come_and_go(tmp_path):
    """Several threads may find the same FIFO gone at once."""
    waker = Waker(tmp_path)
    failures = []
    stop = threading.Event()

    def wake():
        while not stop.is_set():
            try:
                waker.wake()
            except Exception as error:  # noqa: BLE001 - none may come
                failures.append(error)
                return

    threads = [threading.Thread(target=wake) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(150):
        directory = tmp_path / str(number)
        directory.mkdir()
        os.mkfifo(directory / "wake")
        fd = os.open(directory / "wake", os.O_RDONLY | os.O_NONBLOCK)
        wait_until(lambda fd=fd: heard(fd), 60, "a wake-up")
        (directory / "wake").unlink()
        directory.rmdir()
        os.close(fd)
    stop.set()
    for thread in threads:
        thread.join()
    waker.close()
    assert failures == []
