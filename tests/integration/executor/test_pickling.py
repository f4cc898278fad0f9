"""What the executor can send, and how sending may affect the caller."""

import dataclasses
import pickle
import signal
import sys
import threading
from types import SimpleNamespace

import pytest

import jobpool
from jobpool.executor.pickling import pickling
from support.waiting import wait_until

PATIENCE_S = 60.0


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int
    why: str = "none"


class Leaving:
    """Raises SystemExit when it is pickled."""

    def __init__(self, leaves):
        self.leaves = leaves

    def __reduce__(self):
        raise self.leaves


@pytest.fixture(scope="module")
def executor():
    with jobpool.Executor(2) as executor:
        yield executor


def failing(text):
    raise LookupError(text)


def test_closures_that_call_themselves_or_each_other_travel(executor):
    """Among them a function that refers to a class that refers back to it."""

    def fall(n):
        return n if n <= 0 else fall(n - 1) - 1

    def is_even(n):
        return n == 0 or is_odd(n - 1)

    def is_odd(n):
        return n != 0 and is_even(n - 1)

    class Counter:
        def down(self, n):
            return n if n == 0 else count(n - 1)

    def count(n):
        return Counter().down(n)

    assert executor.submit(fall, 3).result(PATIENCE_S) == -3
    assert executor.submit(is_even, 5).result(PATIENCE_S) is False
    assert executor.submit(count, 5).result(PATIENCE_S) == 0


def test_a_function_takes_along_only_the_globals_it_names(executor):
    """Global names used in it and in functions and classes inside it.

    Not its attributes.
    """
    text = """
lock = iter(())  # cannot be pickled
inner, base, shown = 1, 2, 3
def work(box):
    class Local:
        value = base
        def get(self):
            return (lambda: inner)() + self.value + shown
    box.lock = shown
    return Local().get() + box.lock
"""
    namespace = {"__name__": "no_such_module"}
    exec(text, namespace)  # noqa: S102 - as a notebook does
    future = executor.submit(namespace["work"], SimpleNamespace())
    assert future.result(PATIENCE_S) == 9


def test_pickling_leaves_stdout_alone():
    """What other threads print meanwhile is not lost."""
    seen = set()

    def profile(*_event):
        seen.add(sys.stdout)

    function = eval("lambda: shown", {"shown": 1})  # noqa: S307 - a code of its own
    sys.setprofile(profile)
    try:
        pickling.dumps(function)
    finally:
        sys.setprofile(None)
    assert seen == {sys.stdout}


def test_an_exception_that_forbids_setting_attributes_comes_back(executor):
    """A frozen dataclass, with its fields, and with its traceback."""

    def fail():
        raise Frozen(404, why="gone")

    error = executor.submit(fail).exception(PATIENCE_S)
    assert error == Frozen(404, why="gone")
    assert "raise Frozen(404" in str(error.__cause__)
    with pytest.raises(Frozen):
        executor.submit(fail).result(PATIENCE_S)


LEAVING = [SystemExit(3), KeyboardInterrupt("pressed by nobody")]


@pytest.mark.parametrize("leaves", LEAVING, ids=repr)
def test_a_result_that_raises_systemexit_when_unpickled_fails_its_own_future(leaves):
    """Its future reports it; the executor works on."""

    class Trap:
        def __reduce__(self):
            return throw, (leaves,)

    with jobpool.Executor(1) as executor:
        error = executor.submit(Trap).exception(PATIENCE_S)
        assert isinstance(error, pickle.UnpicklingError)
        assert type(leaves).__name__ in str(error)
        assert executor.submit(abs, -2).result(PATIENCE_S) == 2


@pytest.mark.parametrize("leaves", LEAVING, ids=repr)
def test_a_result_that_raises_systemexit_when_pickled_fails_as_its_call(
    executor, leaves
):
    """As in the standard library."""
    future = executor.submit(Leaving, leaves)
    assert type(future.exception(PATIENCE_S)) is type(leaves)


@pytest.mark.parametrize("leaves", LEAVING, ids=repr)
def test_an_argument_that_raises_systemexit_when_pickled_fails_its_future(
    executor, leaves
):
    """It does not escape from `submit` or `map`."""

    class Trap:
        def __reduce__(self):
            raise leaves

    error = executor.submit(abs, Trap()).exception(PATIENCE_S)
    assert isinstance(error, pickle.PicklingError)
    assert type(leaves).__name__ in str(error)
    assert isinstance(error.__cause__, type(leaves))
    with pytest.raises(pickle.PicklingError):
        list(executor.map(abs, [Trap()]))


def test_ctrl_c_while_a_call_is_pickled_reaches_the_caller(executor, monkeypatch):
    """It escapes from `submit`: the argument is not at fault."""

    def press(_module):  # stands for our own code
        signal.raise_signal(signal.SIGINT)
        return ""

    monkeypatch.setattr(pickling, "_PICKLERS", (__name__.partition(".")[0],))
    monkeypatch.setattr(pickling, "stray_file", press)
    with pytest.raises(KeyboardInterrupt):
        executor.submit(failing, 1)


@pytest.mark.parametrize("leaves", LEAVING, ids=repr)
def test_a_callback_that_raises_systemexit_stops_nothing(executor, leaves):
    """Neither later callbacks nor later calls."""
    gate, seen = threading.Event(), []

    def leave(_future):
        gate.wait(PATIENCE_S)
        raise leaves

    future = executor.submit(abs, -1)
    future.add_done_callback(leave)
    future.add_done_callback(seen.append)
    gate.set()
    assert future.result(PATIENCE_S) == 1
    assert executor.submit(abs, -2).result(PATIENCE_S) == 2
    wait_until(lambda: seen == [future], PATIENCE_S, "the other callback")


def throw(error):
    raise error
