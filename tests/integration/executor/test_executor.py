"""The executor: what calls return, in which order, and what cannot travel."""

import contextlib
import dataclasses
import enum
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, as_completed, wait
from pathlib import Path

import pytest

import jobpool
from jobpool.executor.wire.outcomes import ExecutorBroken
from support.waiting import wait_until

PATIENCE_S = 60.0
APPS = Path(__file__).parents[1] / "apps"
LARGE_BYTES = 20 * 2**20


@dataclasses.dataclass
class Point:
    x: int


class Colour(enum.Enum):
    RED = "r"


class Awkward(Exception):
    """Fails to unpickle."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


@pytest.fixture(scope="module")
def executor():
    with jobpool.Executor(2) as executor:
        yield executor


def failing(text):
    raise LookupError(text)


def test_a_result_comes_back(executor):
    """A future has what the function returned, for positional and keyword arguments."""
    future = executor.submit(divmod, 17, 5)
    assert future.result(PATIENCE_S) == (3, 2)
    assert executor.submit(int, "ff", base=16).result(PATIENCE_S) == 255


def test_an_exception_comes_back_with_its_traceback(executor):
    """It is of its own class, and its cause shows the lines in the child, not ours."""
    error = executor.submit(failing, "gone").exception(PATIENCE_S)
    assert type(error) is LookupError
    assert error.args == ("gone",)
    shown = str(error.__cause__)
    assert "raise LookupError(text)" in shown
    assert "jobpool/executor" not in shown


@pytest.mark.parametrize(
    "leaves", [SystemExit(3), KeyboardInterrupt(), StopIteration(1)]
)
def test_exceptions_that_end_programs_end_only_their_call(executor, leaves):
    """The future raises whatever was raised, and the child lives on."""

    def leave():
        raise leaves

    assert type(executor.submit(leave).exception(PATIENCE_S)) is type(leaves)


def test_lambdas_closures_and_local_classes_travel(executor):
    """What cannot be imported goes by value, as an argument and as a result."""
    base = 40

    class Local:
        def __init__(self, value):
            self.value = value

    future = executor.submit(lambda local: Local(local.value + base), Local(2))
    assert future.result(PATIENCE_S).value == 42


def test_a_module_that_is_not_on_the_path_travels_as_its_file(executor):
    """Classes of a test module come back as the caller's own."""
    assert executor.submit(Point, 3).result(PATIENCE_S) == Point(3)
    assert executor.submit(lambda: Colour.RED).result(PATIENCE_S) is Colour.RED


def test_functions_of_an_executed_text_travel(executor):
    """Notebook cells are executed like this: their functions belong to no module."""
    namespace = {"__name__": "no_such_module"}
    exec("K = 3\ndef times(x):\n    return x * K\n", namespace)  # noqa: S102 - as a notebook does
    assert executor.submit(namespace["times"], 5).result(PATIENCE_S) == 15


@pytest.mark.parametrize("how", ["file", "text"])
def test_main_travels(how):
    """Functions, classes and enums of ``__main__`` work, and come back as its own."""
    script = APPS / "executor_main.py"
    command = [str(script)] if how == "file" else ["-c", script.read_text()]
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_what_cannot_be_pickled_fails_its_own_future(executor):
    """Arguments, results and exceptions.

    A clear error for each and for no other future.
    """
    generator = (n for n in range(3))
    bad = [
        executor.submit(list, generator),
        executor.submit(lambda: (n for n in range(3))),
        executor.submit(lambda: failing(n for n in range(3))),
    ]
    good = executor.submit(abs, -1)
    for future in bad:
        assert isinstance(future.exception(PATIENCE_S), pickle.PicklingError)
    assert "generator" in str(bad[1].exception())
    assert good.result(PATIENCE_S) == 1


def test_an_exception_that_cannot_be_unpickled_is_shown(executor):
    """The future says which one it was, with the traceback."""

    def fail():
        raise Awkward(1, 2)

    error = executor.submit(fail).exception(PATIENCE_S)
    assert isinstance(error, pickle.PicklingError)
    assert "Awkward" in str(error)
    assert "raise Awkward(1, 2)" in str(error.__cause__)


def test_a_result_that_cannot_be_put_together_fails_its_own_future(executor):
    """The caller's own class raises the error; other futures are fine."""

    class Trap:
        def __reduce__(self):
            return int, ("no number",)

    error = executor.submit(Trap).exception(PATIENCE_S)
    assert isinstance(error, pickle.UnpicklingError)
    assert "no number" in str(error)
    assert executor.submit(abs, -2).result(PATIENCE_S) == 2


def large_files(directories):
    found = []
    for path in (path for where in directories for path in Path(where).iterdir()):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > 2**20 and path.is_file():
                found.append(path)
    return found


def test_large_arguments_and_results_travel_by_file(executor):
    """20 MiB each way arrive whole, and no file stays behind."""
    data = os.urandom(LARGE_BYTES)
    future = executor.submit(lambda taken: taken[::-1], data)
    assert future.result(PATIENCE_S) == data[::-1]
    directories = executor._own._directories
    # The result's file goes once the future has the result.
    wait_until(lambda: not large_files(directories), PATIENCE_S, "their end")
    assert all(Path(d).stat().st_mode & 0o777 == 0o700 for d in directories)


def test_output_comes_out_on_stderr(capfd, executor):
    """What a call prints appears here once it has ended."""
    executor.submit(print, "words of a child").result(PATIENCE_S)
    seen = []

    def arrived():
        seen.append(capfd.readouterr().err)
        return "words of a child\n" in "".join(seen)

    wait_until(arrived, PATIENCE_S, "the output")


# -- map ---------------------------------------------------------------------------


@pytest.mark.parametrize("chunksize", [1, 7])
def test_map_keeps_the_order(executor, chunksize):
    """Results come in the order of the items for any chunk size.

    Like zip(), it stops at the shortest.
    """
    found = executor.map(lambda a, b: a * b, range(50), range(60), chunksize=chunksize)
    assert list(found) == [n * n for n in range(50)]


def test_map_raises_at_the_item_that_failed(executor):
    """Results before it are delivered."""
    results = executor.map(lambda n: 10 // n, [5, 2, 0, 1])
    assert [next(results), next(results)] == [2, 5]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_map_times_out(executor, tmp_path, monkeypatch):
    """A result that is not there in time raises TimeoutError; earlier ones do not."""
    gate, futures, submit = tmp_path / "gate", [], executor.submit

    def noting(*call):
        futures.append(submit(*call))
        return futures[-1]

    def hold(waits):
        while waits and not gate.exists():
            time.sleep(0.005)

    monkeypatch.setattr(executor, "submit", noting)
    results = executor.map(hold, [False, True], timeout=0.5)
    assert futures[0].result(PATIENCE_S) is None  # in time or not: it is there now
    assert next(results) is None
    with pytest.raises(TimeoutError):
        next(results)
    gate.touch()


def test_map_refuses_invalid_chunk_sizes(executor):
    """As in the standard library."""
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(abs, [1], chunksize=0)


# -- futures -----------------------------------------------------------------------


def test_ten_thousand_calls(executor):
    """All come back, each with its own result."""
    futures = [executor.submit(abs, -n) for n in range(10_000)]
    assert [future.result(PATIENCE_S) for future in futures] == list(range(10_000))


def test_the_standard_tools_work(executor):
    """`as_completed`, `wait`, callbacks, and submitting from a callback."""
    second = []
    first = executor.submit(abs, -1)
    first.add_done_callback(
        lambda done: second.append(executor.submit(abs, -done.result() - 1))
    )
    futures = [executor.submit(abs, -n) for n in range(20)]
    assert sorted(f.result() for f in as_completed(futures, PATIENCE_S)) == list(
        range(20)
    )
    assert not wait(futures, PATIENCE_S).not_done
    wait_until(lambda: second, PATIENCE_S, "the callback")
    assert second[0].result(PATIENCE_S) == 2


def test_calls_from_many_threads(executor):
    """Threads share an executor; each gets its own results."""
    found = {}

    def use(number):
        found[number] = list(executor.map(abs, [-number] * 50))

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == {n: [n] * 50 for n in range(4)}


def test_a_waiting_call_can_be_canceled_and_never_begins(tmp_path):
    """Running calls cannot; waiting ones can, and leave no trace."""
    gate = tmp_path / "gate"

    def hold():
        while not gate.exists():
            time.sleep(0.005)

    with jobpool.Executor(1) as executor:
        first = executor.submit(hold)
        others = [executor.submit((tmp_path / f"began{n}").touch) for n in range(10)]
        wait_until(first.running, PATIENCE_S, "the first call's begin")
        assert not first.cancel()
        canceled = [future for future in others if future.cancel()]
        assert len(canceled) >= len(others) - 2
        gate.touch()
        assert first.result(PATIENCE_S) is None
        for future in canceled:
            with pytest.raises(CancelledError):
                future.result(PATIENCE_S)
    began = {path.name for path in tmp_path.glob("began*")}
    assert began == {f"began{n}" for n, f in enumerate(others) if f not in canceled}


def test_calls_sent_ahead_return_to_the_queue_when_calls_get_slow(tmp_path):
    """The host holds calls ahead while they are fast.

    Those it cannot begin can be canceled.
    """
    gate = tmp_path / "gate"

    def hold():
        while not gate.exists():
            time.sleep(0.005)

    with jobpool.Executor(2) as executor:
        fast = [executor.submit(abs, -n) for n in range(2000)]
        slow = [executor.submit(hold) for _ in range(200)]
        for future in fast:
            future.result(PATIENCE_S)
        # Again and again: the results of fast ones may still let slow ones be sent.
        wait_until(
            lambda: sum(future.cancel() for future in slow) >= 197,
            PATIENCE_S,
            "the recall",
        )
        gate.touch()
    assert all(future.done() for future in slow)


# -- children ----------------------------------------------------------------------


def test_the_initializer_runs_in_each_child():
    """Before any call, with its arguments."""

    def prepare(name, value):
        os.environ[name] = value

    with jobpool.Executor(
        2, initializer=prepare, initargs=("PREPARED", "yes")
    ) as executor:
        found = executor.map(lambda _n: os.environ.get("PREPARED"), range(20))
        assert set(found) == {"yes"}


def test_an_initializer_that_raises_breaks_the_executor(tmp_path):
    """All futures report it, with the traceback, and no more calls are accepted."""
    gate = tmp_path / "gate"

    def fail():
        while not gate.exists():
            time.sleep(0.005)
        raise LookupError("no configuration")

    with jobpool.Executor(2, initializer=fail) as executor:
        futures = [executor.submit(abs, -1) for _ in range(20)]
        gate.touch()  # before, calls are accepted
        for future in futures:
            error = future.exception(PATIENCE_S)
            assert isinstance(error, ExecutorBroken)
            assert "no configuration" in str(error)
        with pytest.raises(ExecutorBroken):
            executor.submit(abs, -1)


def test_once_a_future_says_that_its_executor_is_broken_no_call_is_accepted():
    """Not even in that future's callback."""
    refused = []

    def fail():
        raise LookupError

    def call_again(_future):
        with pytest.raises(ExecutorBroken):
            executor.submit(abs, -1)
        refused.append(True)

    with jobpool.Executor(1, initializer=fail) as executor:
        executor.submit(abs, -1).add_done_callback(call_again)
        wait_until(lambda: refused, PATIENCE_S, "the refusal")


def test_an_initializer_that_dies_breaks_the_executor():
    """Children that cannot start are not started forever."""
    with jobpool.Executor(1, initializer=os._exit, initargs=(7,)) as executor:
        error = executor.submit(abs, -1).exception(PATIENCE_S)
    assert isinstance(error, ExecutorBroken)
    assert "exit code 7" in str(error)


def test_children_are_replaced_after_their_tasks():
    """With max_tasks_per_child=1 no two calls share a process."""
    with jobpool.Executor(2, max_tasks_per_child=1) as executor:
        pids = [executor.submit(os.getpid) for _ in range(6)]
        assert len({future.result(PATIENCE_S) for future in pids}) == 6


def test_children_see_the_callers_path_and_directory(tmp_path, monkeypatch):
    """Modules that the caller would find, and relative paths, work in a child."""
    (tmp_path / "executor_neighbour.py").write_text("def word(): return 'found'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    import executor_neighbour

    with jobpool.Executor(1) as executor:
        assert executor.submit(executor_neighbour.word).result(PATIENCE_S) == "found"
        assert executor.submit(os.getcwd).result(PATIENCE_S) == str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_workers": 0}, ValueError),
        ({"max_workers": "2"}, TypeError),
        ({"max_crashes": 0}, ValueError),
        ({"max_tasks_per_child": 0}, ValueError),
        ({"initializer": 3}, TypeError),
        ({"timeout": "soon"}, jobpool.ConfigError),
        ({"timeout": 0}, jobpool.ConfigError),
        ({"memory": -1}, jobpool.ConfigError),
    ],
)
def test_invalid_arguments_are_refused(arguments, error):
    """At once, and nothing is started."""
    with pytest.raises(error):
        jobpool.Executor(**arguments)
