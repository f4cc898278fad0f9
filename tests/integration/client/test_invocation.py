"""A soft timeout ends a handler wherever it is: in its code, or in an event loop."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from jobpool import JobPool, SoftTimeout

WAIT_S = 30
FOREVER_S = 86_400
"""A sleep this long is interrupted, or the test's own time limit ends it."""


@pytest.fixture(autouse=True)
def soft_timeout_handler():
    """Raise SoftTimeout in the main thread on SIGUSR1, as a child does."""

    def handle(signum, frame):
        raise SoftTimeout("soft limit")

    before = signal.signal(signal.SIGUSR1, handle)
    yield handle
    signal.signal(signal.SIGUSR1, before)


def strike():
    os.kill(os.getpid(), signal.SIGUSR1)


def once(handle):
    """Return a handler that raises the first time only, as a child's does."""
    left = [handle]

    def handle_first(signum, frame):
        if left:
            left.pop()(signum, frame)

    return handle_first


def run(function):
    jobs = JobPool()
    jobs.job("io", kind="k")(function)
    return jobs.invoke("k", b"{}", 1000)


def struck_from_outside(started, *, until=None):
    """Send the signal once *started*, from a thread that does not get it.

    With *until*, again and again: one that comes just before a blocking call does
    not interrupt it, and a plain handler has no event loop to notice.
    """

    def wait_and_strike():
        assert started.wait(WAIT_S)
        strike()
        while until is not None and not until.wait(0.01):
            strike()

    thread = threading.Thread(target=wait_and_strike)
    thread.start()
    return thread


def test_a_plain_handler_is_interrupted():
    """The exception unwinds it, and its ``finally`` runs."""
    started, cleaned = threading.Event(), threading.Event()
    signal.signal(signal.SIGUSR1, once(signal.getsignal(signal.SIGUSR1)))

    def handler():
        try:
            started.set()
            time.sleep(FOREVER_S)
        finally:
            cleaned.set()

    thread = struck_from_outside(started, until=cleaned)
    with pytest.raises(SoftTimeout, match="soft limit"):
        run(handler)
    thread.join()
    assert cleaned.is_set()


@pytest.mark.parametrize("attempt", range(20))
def test_an_async_handler_that_sleeps_is_canceled(attempt, soft_timeout_handler):
    """Wherever the signal arrives around the loop's select(), `finally` runs."""
    started, cleaned = threading.Event(), []

    async def handler():
        try:
            started.set()
            await asyncio.sleep(FOREVER_S)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    thread = struck_from_outside(started)
    with pytest.raises(SoftTimeout, match="soft limit"):
        run(handler)
    thread.join()
    assert cleaned == [True]
    assert signal.getsignal(signal.SIGUSR1) is soft_timeout_handler


def test_a_signal_inside_a_callback_of_the_loop_is_not_lost():
    """The loop itself would log and drop an exception there."""

    async def handler():
        asyncio.get_running_loop().call_soon(strike)
        await asyncio.sleep(FOREVER_S)

    with pytest.raises(SoftTimeout):
        run(handler)


def test_a_signal_inside_another_task_ends_the_handler():
    """A background task must not swallow it."""

    async def background():
        strike()
        await asyncio.sleep(FOREVER_S)

    async def handler():
        task = asyncio.create_task(background())
        await asyncio.sleep(FOREVER_S)
        await task

    with pytest.raises(SoftTimeout):
        run(handler)


def test_a_task_group_is_canceled_as_a_whole():
    """Every task's ``finally`` runs, and the one error is SoftTimeout."""
    cleaned = []

    async def part(number):
        try:
            if number == 1:
                strike()
            await asyncio.sleep(FOREVER_S)
        finally:
            cleaned.append(number)

    async def handler():
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(part(number))

    with pytest.raises(SoftTimeout):
        run(handler)
    assert sorted(cleaned) == [0, 1, 2]


def test_a_handler_may_save_what_it_has_and_return():
    """As a plain handler may catch SoftTimeout."""

    async def handler():
        try:
            strike()
            await asyncio.sleep(FOREVER_S)
        except asyncio.CancelledError:
            return "half"

    assert run(handler) == b'"half"'


def test_a_cancellation_of_its_own_is_not_a_soft_timeout():
    """Only a cancellation caused by the signal is a soft timeout."""

    async def handler():
        asyncio.current_task().cancel()
        await asyncio.sleep(FOREVER_S)

    with pytest.raises(asyncio.CancelledError):
        run(handler)


def test_a_signal_before_the_loop_runs_ends_the_handler(monkeypatch):
    """The coroutine is never started, and no warning is given."""
    ran, start_loop = [], asyncio.run

    async def handler():
        ran.append(True)

    def struck_first(coroutine):
        strike()
        return start_loop(coroutine)

    monkeypatch.setattr(asyncio, "run", struck_first)
    with pytest.raises(SoftTimeout):
        run(handler)
    assert ran == []


def test_inside_a_running_loop_the_error_is_the_only_complaint():
    """A handler cannot run inside another one's loop; no coroutine leaks."""

    async def inner(): ...

    async def outer():
        run(inner)

    with pytest.raises(RuntimeError, match="running event loop"):
        asyncio.run(outer())


def test_without_a_childs_signal_handler_nothing_is_touched():
    """In an ordinary process SIGUSR1 keeps its meaning."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    async def handler():
        strike()
        return signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN

    assert run(handler) == b"true"


def test_an_async_handler_may_run_in_another_thread():
    """Tests and notebooks call from threads that can have no signal handler."""
    results = []

    async def handler():
        return 1

    thread = threading.Thread(target=lambda: results.append(run(handler)))
    thread.start()
    thread.join(WAIT_S)
    assert results == [b"1"]


LATE = """
import os, signal, sys, threading
from jobpool import JobPool
from jobpool.client.invoke.invocation import call
from jobpool.errors import SoftTimeout

jobs = JobPool()

class Strike:
    # The soft limit strikes in the middle of the import.
    def find_spec(self, name, *_):
        if name == "asyncio.events":
            signal.pthread_kill(receiver.ident, signal.SIGUSR1)

def strike(*_):
    raise SoftTimeout("now")

def hidden():
    return work()

async def work():
    return 1

signal.signal(signal.SIGUSR1, strike)
receiver = threading.main_thread()
if sys.argv[1] == "another":
    receiver = threading.Thread(target=threading.Event().wait, daemon=True)
    receiver.start()
sys.meta_path.insert(0, Strike())
jobs.job("cpu", kind="hidden")(hidden)
assert "asyncio" not in sys.modules
try:
    call(hidden)
except SoftTimeout:
    print("struck")
print(call(hidden))
"""
DECORATED = """
import functools, sys
from jobpool import JobPool

jobs = JobPool()

def traced(function):
    @functools.wraps(function)
    def run(*args):
        return function(*args)
    return run

@traced
async def decorated():
    pass

class Object:
    async def __call__(self):
        pass

function = {"decorated": decorated, "object": Object(), "plain": len}[sys.argv[1]]
jobs.job("cpu", kind="it")(function)
print("asyncio" in sys.modules)
"""


def said_by(script, *args):
    """Run a script in a fresh interpreter, without warnings; return its output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *args],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("receiver", ["main", "another"])
def test_a_soft_limit_does_not_strike_in_the_import_of_asyncio(receiver):
    """Half imported modules would fail every later job; the coroutine is closed.

    Whatever thread receives the signal, its handler runs in the main one.
    """
    assert said_by(LATE, receiver) == ["struck", "1"]


class Contrary:
    """Answers every attribute access with a meaningless value."""

    __signature__ = inspect.signature(lambda: None)

    def __getattr__(self, name):
        return self

    def __call__(self):
        return 7


def test_an_object_that_says_anything_of_itself_can_be_a_handler():
    """Unwrapping decorators only saves time; it is no reason to refuse a handler."""
    handler = Contrary()
    handler.__wrapped__ = handler
    JobPool().job("cpu", kind="contrary")(handler)


@pytest.mark.parametrize(
    ("form", "is_known"),
    [("decorated", "True"), ("object", "True"), ("plain", "False")],
)
def test_an_async_handler_behind_a_decorator_is_known_before_its_first_job(
    form, is_known
):
    """No attempt pays for an import, nor does an application without async handlers."""
    assert said_by(DECORATED, form) == [is_known]
