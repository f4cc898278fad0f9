"""Quick calls travel together; each is made, and ends, as if it were alone."""

import ctypes
import os
import threading
import time
from pathlib import Path

import pytest

import jobpool
from jobpool import JobCrashed, JobOutOfMemory, JobTimedOut
from support.waiting import Running, wait_until

PATIENCE_S = 60.0
WARM = 300
"""Calls after which a function is known to be quick."""


@pytest.fixture(scope="module")
def executor():
    with jobpool.Executor(2) as executor:
        yield executor


def bundle():
    """Name the job that this call is in."""
    return jobpool.current().token


def warmed(executor, function, *arguments):
    """Make calls until some of them have travelled together."""

    def are_together():
        tokens = list(executor.map(function, range(WARM), *map(repeated, arguments)))
        return len(set(map(str, tokens))) < WARM // 2

    wait_until(are_together, PATIENCE_S, "bundles")


def together(executor, function, *arguments, at=60):
    """Return what calls return, once call *at* was not the first of its bundle.

    Their results begin with the job's token.
    """

    def try_it():
        found = list(executor.map(function, *arguments))
        return found if found[at - 1][0] == found[at][0] else None

    return wait_until(try_it, PATIENCE_S, "a bundle around a certain call")


def repeated(value):
    return [value] * WARM


def quick(n, bad=(), die=None, log=None):
    """Return the job's token; for some numbers, do something else first."""
    if log is not None:
        with open(log, "ab", 0) as file:  # noqa: PTH123 - in a child, as quick as may be
            file.write(b"%d\n" % n)
    if n in bad:
        die()
    return bundle()


def closes(n, folder):
    """Once, close all descriptors, as daemons do, and keep some files open."""
    if n == WARM:
        os.closerange(3, 256)
        for number in range(20):
            fd = os.open(f"{folder}/{number}", os.O_RDWR | os.O_CREAT, 0o600)
            os.write(fd, b"a user's data")
            os.lseek(fd, 0, os.SEEK_SET)
    return [bundle()]


def hog():
    held = []
    while True:
        held.append(bytearray(8 * 2**20))


def ends_of(futures):
    """Return the exceptions by number, once all have ended."""
    found = {n: f.exception(PATIENCE_S) for n, f in enumerate(futures)}
    return {n: error for n, error in found.items() if error is not None}


def test_quick_calls_travel_together(executor):
    """Many calls are one job of the supervisor's; slow ones never are."""
    warmed(executor, quick)
    slow = [executor.submit(slow_token) for _ in range(20)]
    assert len({future.result(PATIENCE_S) for future in slow}) == 20


def slow_token():
    time.sleep(0.01)
    return bundle()


def test_a_calls_file_never_replaces_the_bundles_descriptors(executor, tmp_path):
    """Ends are not written to it, and its bytes are not taken for tickets."""
    warmed(executor, closes, str(tmp_path))
    numbers = [*range(60), WARM, *range(60)]
    together(executor, closes, numbers, [str(tmp_path)] * len(numbers), at=61)
    books = list(tmp_path.iterdir())
    assert len(books) == 20
    assert {book.read_bytes() for book in books} == {b"a user's data"}


@pytest.mark.parametrize(
    ("die", "name", "code"),
    [
        (lambda: ctypes.string_at(0), "SIGSEGV", None),
        (lambda: os._exit(3), None, 3),
    ],
    ids=["segfault", "exit"],
)
def test_a_death_in_a_bundle_fails_one_future(executor, tmp_path, die, name, code):
    """The one that was running. Every call, including that one, began exactly once."""
    log = tmp_path / "log"
    bad = {100, 101, 250}

    def are_together():
        log.write_bytes(b"")
        warmed(executor, quick)
        futures = [executor.submit(quick, n, bad, die, str(log)) for n in range(400)]
        errors = ends_of(futures)
        tokens = {f.result() for n, f in enumerate(futures) if n not in bad}
        assert errors.keys() == bad
        for error in errors.values():
            assert type(error) is JobCrashed
            assert (error.evidence.signal, error.evidence.exit_code) == (name, code)
            assert error.evidence.attempts == 1
        assert sorted(map(int, log.read_text().split())) == list(range(400))
        # After a slow call, and there may be one, none is taken for quick for a while.
        return len(tokens) < 390

    wait_until(are_together, PATIENCE_S, "bundles around who dies")


def test_a_time_limit_in_a_bundle_applies_to_each_call():
    """One call is killed, not before its time; its error names the caller's limit."""

    def call(n):  # by value: to import this module takes long on a busy machine
        if n == WARM + 60:
            time.sleep(PATIENCE_S)
        return jobpool.current().token

    with jobpool.Executor(2, timeout="5s") as executor, Running() as machine:
        warmed(executor.options(timeout="1m"), call)
        futures = [executor.submit(call, WARM + n) for n in range(200)]
        errors = ends_of(futures)
        stood_s = machine.stood_ms() / 1000
    # A machine that stands still for so long lets others be killed at their limit.
    assert errors.keys() == {60} or (60 in errors and stood_s >= 3.0)
    assert type(errors[60]) is JobTimedOut
    assert errors[60].evidence.duration_s >= 5.0
    assert "limit of 5s" in str(errors[60])


def test_a_memory_limit_in_a_bundle_applies_to_each_call():
    """One call is killed at its limit."""
    with jobpool.Executor(2, memory="200MiB") as executor:
        warmed(executor, quick)
        futures = [executor.submit(quick, n, {60}, hog) for n in range(200)]
        errors = ends_of(futures)
    assert errors.keys() == {60}
    assert type(errors[60]) in {JobOutOfMemory, MemoryError}


def test_a_slow_call_delays_no_other(executor, tmp_path):
    """Earlier calls report their results; later calls go to another child."""
    gate = tmp_path / "gate"

    def hold():
        while not gate.exists():
            time.sleep(0.005)

    def are_together():
        gate.unlink(missing_ok=True)
        warmed(executor, quick)
        futures = [executor.submit(quick, n, {60}, hold) for n in range(200)]
        others = futures[:60] + futures[61:]
        tokens = {future.result(PATIENCE_S) for future in others}
        assert not futures[60].done()
        gate.touch()
        assert futures[60].result(PATIENCE_S)
        # As above: there may be another slow call.
        return len(tokens) < 190

    wait_until(are_together, PATIENCE_S, "bundles around who is slow")


def messy(_n, folder):
    """Change the process; tell the state that was found."""
    found = (os.getcwd(), os.environ.get("MESS"), os.umask(0o077))  # noqa: PTH109 - a str
    os.environ["MESS"] = "left"
    os.chdir(folder)
    return bundle(), found


def test_each_call_begins_in_the_initial_state(executor, tmp_path):
    """Directory, variables and umask of one call do not reach the next."""
    with_state = together(executor, messy, [0] * WARM, repeated(str(tmp_path)))
    states = {state for _token, state in with_state}
    assert len(states) == 1
    assert states.pop()[:2] == (str(Path.cwd()), None)


def speaking(n):
    print(f"call {n} speaks")  # noqa: T201 - this is the point
    return bundle()


def test_what_calls_print_comes_out_once(capfd):
    """Also of those that travelled together."""
    with jobpool.Executor(1) as executor:
        warmed(executor, speaking)
        capfd.readouterr()
        list(executor.map(speaking, range(1000, 1000 + WARM)))
    said = [line for line in capfd.readouterr().err.splitlines() if "call 1" in line]
    spoken = [n for n in range(1000, 1000 + WARM) if f"call {n} speaks" in said]
    assert len(spoken) == WARM
    assert len(said) - len(spoken) <= WARM  # of the calls that made it warm


def forking(n):
    """Come back from the call twice, when the number says so."""
    if n == 60 and os.fork() == 0:
        return bundle(), "the copy's"
    return bundle(), "ours"


def test_a_forked_copy_that_returns_from_a_call_reports_nothing(executor):
    """The bundle continues only in the original process."""
    found = together(executor, forking, range(200))
    assert {whose for _token, whose in found} == {"ours"}


def leaving(n):
    """Leave a thread behind."""
    if n == 60:
        threading.Thread(target=time.sleep, args=(PATIENCE_S,), daemon=True).start()
    return bundle(), os.getpid()


def test_what_a_call_leaves_behind_ends_its_child():
    """No other call of the bundle is made in that process."""
    with jobpool.Executor(1) as executor:
        found = together(executor, leaving, range(200))
    pids = [pid for _token, pid in found]
    assert pids[59] == pids[60]
    assert pids[60] not in pids[61:]


def raising(n):
    if n % 2:
        raise ValueError(n)
    return bundle()


def test_exceptions_and_large_results_travel_as_well(executor):
    """Each goes to its own future, in its order."""
    warmed(executor, raising_token)
    futures = [executor.submit(raising, n) for n in range(WARM)]
    errors = ends_of(futures)
    assert {n: error.args for n, error in errors.items()} == {
        n: (n,) for n in range(1, WARM, 2)
    }
    found = list(executor.map(bytes, [2**19] * 100))
    assert {len(data) for data in found} == {2**19}


def raising_token(n):
    return raising(2 * n)


def test_calls_that_may_be_repeated_travel_alone():
    """The supervisor counts their deaths."""
    with jobpool.Executor(2, max_crashes=3) as executor:
        tokens = list(executor.map(quick, range(WARM)))
    assert len(set(tokens)) == WARM


def test_trays_are_removed(executor):
    """When all calls have ended, no tray is left in the private directory."""
    warmed(executor, quick)
    folder = Path(executor._own._directories[0])
    wait_until(
        lambda: not [*folder.glob("*.tickets"), *folder.glob("*.ends")],
        PATIENCE_S,
        "the trays' removal",
    )


def test_one_worker_begins_calls_in_the_order_of_their_submission(tmp_path):
    """Quick ones of several functions, with and without limits, slow ones between."""
    log = tmp_path / "log"

    def note(number, pause_s=0.0):
        time.sleep(pause_s)
        with open(log, "ab", 0) as file:  # noqa: PTH123 - quick, and by value
            file.write(b"%d\n" % number)

    def another(number):
        note(number)

    with jobpool.Executor(1) as executor:
        limited = executor.options(timeout="30s")
        fine = executor.options(timeout="0.9s")
        for _round in range(3):
            log.write_bytes(b"")
            short = {}
            for n in range(0, 600, 6):
                executor.submit(note, n)
                executor.submit(another, n + 1)
                limited.submit(note, n + 2)
                limited.submit(another, n + 3)
                short[n + 4] = fine.submit(another, n + 4)
                last = executor.submit(note, n + 5, 0.08 if n == 300 else 0.0)
            last.result(PATIENCE_S)
            # A machine that stands still for so long lets one be killed at its limit.
            late = {n for n, one in short.items() if one.exception(PATIENCE_S)}
            found = [*map(int, log.read_text().split())]
            assert found == [n for n in range(600) if n not in late.difference(found)]
