"""One death fails one future, whose error explains it.

Limits hold; deaths are counted.
"""

import ctypes
import os
import pickle
import resource
import signal
import sys
import time
from pathlib import Path

import pytest

import jobpool
from jobpool import JobCrashed, JobOutOfMemory, JobTimedOut
from support.waiting import wait_until

PATIENCE_S = 60.0
SOON_S = 40.0
"""Far below what an unlimited call would take, far above any limit here."""


@pytest.fixture(scope="module")
def executor():
    with jobpool.Executor(2) as executor:
        yield executor


def hog():
    """Take memory until killed, which may be after far more is refused."""
    held = []
    try:
        while True:
            held.append(bytearray(8 * 2**20))
    except MemoryError:
        time.sleep(PATIENCE_S)


def kill_self(signum):
    os.kill(os.getpid(), signum)
    time.sleep(PATIENCE_S)


@pytest.mark.parametrize(
    ("die", "arguments", "name", "code"),
    [
        (ctypes.string_at, (0,), "SIGSEGV", None),
        (os._exit, (3,), None, 3),
        (os._exit, (0,), None, 0),
        (os.abort, (), "SIGABRT", None),
        (kill_self, (signal.SIGKILL,), "SIGKILL", None),
    ],
    ids=["segfault", "exit 3", "exit 0", "abort", "kill -9"],
)
def test_a_death_fails_one_future_only(executor, die, arguments, name, code):
    """200 others, before and after it, succeed; the evidence shows how it died."""
    before = [executor.submit(abs, -n) for n in range(100)]
    victim = executor.submit(die, *arguments)
    after = [executor.submit(abs, -n) for n in range(100)]
    error = victim.exception(PATIENCE_S)
    assert type(error) is JobCrashed
    assert (error.evidence.signal, error.evidence.exit_code) == (name, code)
    assert error.evidence.outcome == "crashed"
    assert error.evidence.peak_rss_bytes > 2**20
    for futures in (before, after):
        assert [f.result(PATIENCE_S) for f in futures] == list(range(100))


def test_the_error_of_a_death_reads_well(executor):
    """It has the signal, last output and Python stack, without our own frames."""

    def innermost():
        sys.stdout.write("the last words\n")
        ctypes.string_at(0)

    text = str(executor.submit(innermost).exception(PATIENCE_S))
    assert "SIGSEGV" in text
    assert "the last words" in text
    assert "in innermost" in text
    assert "jobpool/sandbox" not in text


def test_the_error_survives_pickling(executor):
    """It can cross another pool's pipes, with its evidence."""
    error = executor.submit(os._exit, 3).exception(PATIENCE_S)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.evidence) == (
        JobCrashed,
        str(error),
        error.evidence,
    )


def test_a_timeout_ends_even_c_code(executor):
    """`sum` over a range never returns to Python; it is killed all the same."""
    began_s = time.monotonic()
    future = executor.options(timeout="500ms").submit(sum, range(10**12))
    error = future.exception(PATIENCE_S)
    took_s = time.monotonic() - began_s
    assert type(error) is JobTimedOut
    assert isinstance(error, TimeoutError)
    assert error.evidence.duration_s >= 0.5
    assert took_s < SOON_S


def test_a_timeout_is_never_tried_again(executor, tmp_path):
    """Whatever max_crashes is: it would only take as long again."""
    begun = tmp_path / "begun"

    def hang():
        with begun.open("a") as file:
            file.write("x")
        time.sleep(PATIENCE_S)

    future = executor.options(timeout=2, max_crashes=5).submit(hang)
    error = future.exception(PATIENCE_S)
    assert type(error) is JobTimedOut
    assert error.evidence.attempts == 1
    # It may be killed before its first line: its time passes on a busy machine, too.
    assert not begun.exists() or begun.read_text() in {"", "x"}


def test_a_memory_hog_is_killed_at_its_limit(executor):
    """The error has the limit in its text and the peak in its evidence."""
    error = executor.options(memory="200MiB").submit(hog).exception(PATIENCE_S)
    assert type(error) is JobOutOfMemory
    assert isinstance(error, MemoryError)
    assert error.evidence.peak_rss_bytes > 150 * 2**20
    assert "200MiB" in str(error)


def test_limits_of_the_executor_apply_to_all_calls():
    """Those of `options` replace them one by one."""
    with jobpool.Executor(1, timeout="500ms", memory="200MiB") as executor:
        slow = executor.submit(time.sleep, PATIENCE_S)
        assert type(slow.exception(PATIENCE_S)) is JobTimedOut
        patient = executor.options(timeout="1m")
        assert patient.submit(time.sleep, 0.8).exception(PATIENCE_S) is None
        assert type(patient.submit(hog).exception(PATIENCE_S)) is JobOutOfMemory
        assert list(patient.map(abs, [-1, -2])) == [1, 2]


def test_a_call_is_repeated_up_to_max_crashes(executor, tmp_path):
    """With max_crashes=3, the third death fails the future."""

    def die():
        with (tmp_path / "begun").open("a") as file:
            file.write("x")
        os._exit(9)

    error = executor.options(max_crashes=3).submit(die).exception(PATIENCE_S)
    assert type(error) is JobCrashed
    assert error.evidence.attempts == 3
    assert (tmp_path / "begun").read_text() == "xxx"


def test_a_call_that_survives_its_second_attempt_succeeds(executor, tmp_path):
    """A death before max_crashes is not reported."""
    marker = tmp_path / "died"

    def die_once():
        if marker.exists():
            return "alive"
        marker.touch()
        os._exit(9)

    future = executor.options(max_crashes=2).submit(die_once)
    assert future.result(PATIENCE_S) == "alive"


def test_an_exception_is_never_tried_again(executor, tmp_path):
    """max_crashes counts deaths only."""

    def fail():
        with (tmp_path / "begun").open("a") as file:
            file.write("x")
        raise LookupError

    future = executor.options(max_crashes=3).submit(fail)
    assert type(future.exception(PATIENCE_S)) is LookupError
    assert (tmp_path / "begun").read_text() == "x"


def test_a_death_in_a_chunk_fails_its_chunk(executor):
    """The items of a chunk are one call; those of other chunks are delivered."""

    def die_at_five(n):
        if n == 5:
            os._exit(1)
        return n

    results = executor.map(die_at_five, range(9), chunksize=3)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(JobCrashed):
        next(results)


def test_what_a_call_leaves_behind_is_gone_when_it_died(executor, tmp_path):
    """A process that it has started does not outlive it."""
    note = tmp_path / "pid"

    def leave():
        pid = os.fork()
        if pid == 0:
            os.setsid()
            note.write_text(str(os.getpid()))
            time.sleep(PATIENCE_S)
        while not (note.exists() and note.read_text()):
            time.sleep(0.005)
        os._exit(1)

    assert type(executor.submit(leave).exception(PATIENCE_S)) is JobCrashed
    pid = int(note.read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), SOON_S, "its process's end")


def test_the_bound_on_data_follows_the_calls_limit(executor):
    """Somewhat above it. A call without a limit has none, even after one that had."""

    def bound():
        return resource.getrlimit(resource.RLIMIT_DATA)[0]

    limited = executor.options(memory="256MiB")
    for _ in range(3):
        found = limited.submit(bound).result(PATIENCE_S)
        assert 256 * 2**20 < found < 2**34
        found = executor.submit(bound).result(PATIENCE_S)
        assert found == resource.RLIM_INFINITY or found > 2**40
