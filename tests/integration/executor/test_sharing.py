"""Objects of the caller's process, used in the executor's children."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import threading
from pathlib import Path

import msgspec
import multiprocess
import pytest

import jobpool
from jobpool.executor.pickling.borrowing import Request
from jobpool.executor.pickling.lending import _Holder
from support.machine.executing import STOOD_STILL, marked
from support.waiting import wait_until

PATIENCE_S = 60.0
FAMILIES = [multiprocessing, multiprocess]
CALLS = 8
held = []


@pytest.fixture(params=FAMILIES, ids=lambda family: family.__name__)
def family(request):
    return request.param


@pytest.fixture(params=["fork", "spawn"])
def context(family, request):
    return family.get_context(request.param)


@pytest.fixture
def executor():
    with jobpool.Executor(2) as executor:
        yield executor


def keep(*things):
    held[:] = things


def use(number):
    """Use each object in a way that would show if it were the child's own."""
    lock, condition, queue, joinable, simple, event, value, array, barrier = held
    with lock, lock:
        seen = value.value
        value.value = seen + 1
        array[0] = seen + 1
    with condition:
        condition.notify_all()
    queue.put(("queue", number))
    joinable.put(number)
    joinable.get(timeout=PATIENCE_S)
    joinable.task_done()
    simple.put(number)
    barrier.wait(PATIENCE_S)  # two calls at a time
    event.set()
    return os.getpid()


def test_primitives_in_initargs_are_shared_with_the_caller(context, capfd):
    """Locks, queues, events, values: shared with each child and with the caller."""
    things = (
        context.RLock(),
        context.Condition(),
        context.Queue(),
        context.JoinableQueue(),
        context.SimpleQueue(),
        context.Event(),
        context.Value("i", 0),
        context.Array("i", 3),
        context.Barrier(2),
    )
    with jobpool.Executor(2, initializer=keep, initargs=things) as executor:
        futures = [executor.submit(use, n) for n in range(CALLS)]
        pids = {future.result(PATIENCE_S) for future in futures}
        # None was replaced for what it was lent.
        assert len(pids) == 2 or STOOD_STILL in capfd.readouterr().err
        _, _, queue, joinable, simple, event, value, array, _ = things
        got = {queue.get(timeout=PATIENCE_S) for _ in range(CALLS)}
        assert got == {("queue", n) for n in range(CALLS)}
        assert {simple.get() for _ in range(CALLS)} == set(range(CALLS))
        joinable.join()
        assert event.is_set()
        assert (value.value, array[0]) == (CALLS, CALLS)


def take_in_turn(lock, path):
    with lock, open(path, "r+b", 0) as file:  # noqa: PTH123 - no buffer
        seen = int(file.read() or b"0")
        file.seek(0)
        file.write(b"%d" % (seen + 1))


def test_a_lock_as_an_argument_excludes_other_calls_and_the_caller(
    context, executor, tmp_path
):
    """It waits for the holder; a time-out is reported."""
    lock, path = context.Lock(), tmp_path / "count"
    path.touch()
    lock.acquire()
    assert not executor.submit(lambda: None).exception(PATIENCE_S)
    tried = executor.submit(lambda lock: lock.acquire(timeout=0.05), lock)
    assert tried.result(PATIENCE_S) is False
    futures = [executor.submit(take_in_turn, lock, path) for _ in range(CALLS)]
    assert path.read_bytes() == b""
    lock.release()
    for future in futures:
        assert future.exception(PATIENCE_S) is None
    assert path.read_bytes() == b"%d" % CALLS
    error = executor.submit(lambda lock: lock.release(), lock).exception(PATIENCE_S)
    assert isinstance(error, ValueError)


def test_a_lock_is_released_when_its_holder_dies(executor, tmp_path):
    """An RLock of the fork context, which only its holder could release."""
    lock, note = multiprocessing.get_context("fork").RLock(), tmp_path / "held"

    def die(lock):
        lock.acquire()
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    def wait_for_it(lock):
        return lock.acquire(timeout=PATIENCE_S)

    dying = executor.submit(die, lock)
    wait_until(note.exists, PATIENCE_S, "the holder")
    assert executor.submit(wait_for_it, lock).result(PATIENCE_S)
    assert isinstance(dying.exception(PATIENCE_S), jobpool.JobCrashed)
    wait_until(lambda: lock.acquire(block=False), PATIENCE_S, "the lock")


def test_proxies_of_managers_work_in_children(family, executor):
    """A proxy of the caller's manager works there, and comes back."""
    with family.Manager() as manager:
        queue, shared = manager.Queue(), manager.dict(nested=manager.list())
        assert executor.submit(queue.put, 3).result(PATIENCE_S) is None
        assert queue.get(timeout=PATIENCE_S) == 3

        def change(shared):
            shared["nested"].append(5)
            return shared["nested"]

        back = executor.submit(change, shared).result(PATIENCE_S)
        assert list(back) == list(shared["nested"]) == [5]


def test_the_managers_key_is_not_exposed(executor, marker):
    """Not on a command line, in an environment, or in a file readable by others."""
    key = bytes(multiprocessing.current_process().authkey)
    executor.submit(abs, -1).result(PATIENCE_S)
    processes = marked(marker)
    assert processes
    for pid in processes:
        for name in ("cmdline", "environ"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                shown = Path(f"/proc/{pid}/{name}").read_bytes()
                assert key not in shown
                assert key.hex().encode() not in shown
    for directory in executor._own._directories:
        for path in Path(directory).rglob("*"):
            with contextlib.suppress(OSError):  # it is gone, or a socket
                if path.is_file() and key in path.read_bytes():
                    assert path.stat().st_mode & 0o777 == 0o600


def greet(connection, end):
    connection.send("hello")
    end.sendall(b"and this")


def test_connections_and_sockets_can_be_sent(family, executor):
    """The child gets its own descriptors; ours stay open, and none leaks."""
    executor.submit(greet, *[None] * 2).exception(PATIENCE_S)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        (ours, theirs), (near, far) = family.Pipe(), socket.socketpair()
        with ours, theirs, near, far:
            executor.submit(greet, theirs, far).result(PATIENCE_S)
            assert ours.recv() == "hello"
            assert near.recv(100) == b"and this"
            theirs.send("still ours")
    executor.shutdown()
    names = {thread.name for thread in threading.enumerate()}
    wait_until(
        lambda: not any("lender" in t.name for t in threading.enumerate()),
        PATIENCE_S,
        f"the end of {names}",
    )
    after = len(list(Path("/proc/self/fd").iterdir()))
    assert after < before


def test_a_connection_in_a_result_is_refused_by_name(family, executor):
    """As a bare number it would be an unrelated descriptor here."""
    error = executor.submit(lambda: family.Pipe()[0]).exception(PATIENCE_S)
    assert isinstance(error, pickle.PicklingError)
    assert "a Connection can be sent to a call, but not come back" in str(error)


def test_an_item_that_cannot_be_pickled_takes_no_place_in_a_queue(family, executor):
    """The call gets the error, and the queue's bound is unchanged."""
    queue = family.get_context("fork").Queue(1)
    for _ in range(2):
        error = executor.submit(put_unpicklable, queue).exception(PATIENCE_S)
        assert "cannot pickle" in str(error)
    assert not queue.full()


def put_unpicklable(queue):
    queue.put((n for n in ()), block=False)


def test_a_child_that_is_gone_is_given_no_lock():
    """If a child dies when its turn comes, the lock is not given to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    lock = multiprocessing.get_context("fork").Lock()
    with ours, theirs:
        theirs.send(msgspec.msgpack.encode(Request("acquire", (True, None))))
        theirs.close()
        with pytest.raises(ConnectionError):
            _Holder(ours, lock._semlock).serve()
    assert lock.acquire(block=False)


def test_objects_lent_to_a_call_end_with_it(executor):
    """Later use raises a clear error."""
    lock = multiprocessing.get_context("fork").Lock()
    with jobpool.Executor(1) as one:
        one.submit(keep, lock).result(PATIENCE_S)
        pickled = one.submit(pickled_again).result(PATIENCE_S)
    assert "was sent with has ended" in pickled


def pickled_again():
    """Use a lock of an earlier call from another thread."""
    said = []

    def use_it():
        try:
            held[0].acquire()
        except OSError as error:
            said.append(str(error))

    thread = threading.Thread(target=use_it)
    thread.start()
    thread.join()
    return said[0]


def test_initargs_that_cannot_be_pickled_raise_from_submit(marker):
    """`submit` raises; nothing is started, and nothing is left."""
    with jobpool.Executor(1, initializer=keep, initargs=((n for n in "a"),)) as one:
        with pytest.raises(pickle.PicklingError, match="generator"):
            one.submit(abs, -1)
        assert not marked(marker)
