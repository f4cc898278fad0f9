"""A function is pickled once for many calls, but an outdated one is never called."""

import types

import pytest

from jobpool.executor.pickling.function_cache import BYTES_MAX, FUNCTIONS_MAX, Parcels
from jobpool.executor.pickling.pickling import dumps, loads

TEXT = """
import logging, re
BASE = 1
PAIR = (1, "two")
LISTED = [1]
PATTERN = re.compile("1+")
LOG = logging.getLogger("a log")
class Local:
    value = 1
def deepest(x): return x + BASE
def helper(x): return deepest(x)
def plain(x, more=0, *, named=0): return helper(x) + more + named + len(PAIR)
def fixed(x): return (LOG.name, bool(PATTERN.match("11")), re.escape("."))
def noted(x: "int") -> "int": return x
def shadowing(x): return abs(-x)
def missing(x): return x if x < 9 else unknown
def listed(x): return x + LISTED[0]
def classy(x): return x + Local.value
def annotated(x: Local): return annotated.__annotations__["x"].value
def recursive(x): return x if x <= 0 else recursive(x - 1)
def closing():
    held = 1
    def inner(x): return x + held
    def change(to):
        nonlocal held
        held = to
    inner_change.append(change)
    return inner
inner_change = []
closed = closing()
"""


class Counting:
    """Parcels that count what they pickle, and a namespace of functions."""

    def __init__(self):
        self.pickled = 0
        self.names = {"__name__": "no_such_module"}
        exec(TEXT, self.names)  # noqa: S102 - functions of their own for each test
        self.parcels = Parcels(self.pickle, loads)

    def pickle(self, function):
        self.pickled += 1
        return dumps(function)

    def call(self, name, *arguments, **keywords):
        """Call a function as a child would."""
        sent = dumps((self.parcels.of(self.names[name]), arguments, keywords))
        function, arguments, keywords = loads(sent)
        return function(*arguments, **keywords)


@pytest.fixture
def counting():
    return Counting()


@pytest.mark.parametrize(
    "name", ["plain", "fixed", "noted", "shadowing", "missing", "recursive", "closed"]
)
def test_a_function_that_does_not_change_is_pickled_once(counting, name):
    """With what it refers to: functions, constants, modules."""
    found = [counting.call(name, 5) for _ in range(3)]
    assert found == [counting.names[name](5)] * 3
    assert counting.pickled == 1


def test_a_lambda_of_a_loop_is_pickled_once(counting):
    """It is another object each time; what it closes over is not."""
    for shift in (1, 1, 2, 2):
        counting.names["made"] = lambda x, shift=shift: x + shift
        assert counting.call("made", 5) == 5 + shift
    assert counting.pickled == 2


def set_global(name, value):
    return lambda names: names.update({name: value})


def other(x, more=7, *, named=7):
    return x * 100 + more + named


CHANGES = {
    "a constant": ("plain", set_global("BASE", 10)),
    "one that is equal": ("plain", set_global("BASE", True)),
    "a tuple": ("plain", set_global("PAIR", (1, 2, 3))),
    "a function": ("plain", set_global("helper", lambda x: x * 50)),
    "code": ("plain", lambda n: setattr(n["plain"], "__code__", other.__code__)),
    "code below": ("plain", lambda n: setattr(n["deepest"], "__code__", BELOW)),
    "a default": ("plain", lambda n: setattr(n["plain"], "__defaults__", (9,))),
    "a named default": ("plain", lambda n: n["plain"].__kwdefaults__.update(named=9)),
    "a closure": ("closed", lambda n: n["inner_change"][0](30)),
    "a built-in": ("shadowing", set_global("abs", lambda x: 77)),
    "a missing name": ("missing", set_global("unknown", 13)),
    "what a list holds": ("listed", lambda n: n["LISTED"].insert(0, 30)),
    "a class": ("classy", lambda n: setattr(n["Local"], "value", 30)),
    "an annotation's": ("annotated", lambda n: setattr(n["Local"], "value", 30)),
    "a name that is gone": ("plain", lambda n: n.pop("BASE")),
}
BELOW = (lambda x: x + 1000).__code__


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen_by_the_next_call(counting, what):
    """Whatever it is in: the call does the same as the caller's own function."""
    name, change = CHANGES[what]
    argument = 12 if what == "a missing name" else 5
    if what != "a missing name":
        assert counting.call(name, argument) == counting.names[name](argument)
    else:
        counting.call(name, 5)
    change(counting.names)
    try:
        expected = counting.names[name](argument)
    except NameError:
        with pytest.raises(NameError):
            counting.call(name, argument)
        return
    found = counting.call(name, argument)
    assert (found, type(found)) == (expected, type(expected))


def test_attributes_of_a_function_are_seen(counting):
    """They travel as well."""
    function = counting.names["recursive"]
    counting.call("recursive", 1)
    function.limit = 3
    sent = loads(dumps(counting.parcels.of(function)))
    assert sent.limit == 3


def test_other_callables_are_not_cached(counting):
    """The usual pickler is faster with it."""
    for one in (abs, len, types.SimpleNamespace, Counting().call, dumps):
        assert counting.parcels.of(one) is one
    assert counting.pickled == 0


def test_the_size_of_the_cache_is_bounded(counting):
    """Neither long pickles, nor those of functions without end."""
    counting.names["BASE"] = "x" * BYTES_MAX
    for _ in range(2):
        assert counting.call("deepest", "y") == "y" + "x" * BYTES_MAX
    for number in range(2 * FUNCTIONS_MAX):
        names = {"__name__": "no_such_module"}
        exec(f"def made(x): return x + {number}", names)  # noqa: S102 - the same
        counting.parcels.of(names["made"])
        assert len(counting.parcels._known) <= FUNCTIONS_MAX


def test_a_function_travels_together_with_its_arguments(counting):
    """Both refer to the same class there."""
    exec("def is_local(x): return type(x) is Local", counting.names)  # noqa: S102 - the same
    local = counting.names["Local"]()
    assert counting.call("is_local", local)
    exec("def same(x): return x is same", counting.names)  # noqa: S102 - the same
    for _ in range(2):
        assert counting.call("same", counting.names["same"])


def test_the_same_code_over_other_globals_is_another_function():
    """As when a text is compiled once, and run for each tenant."""
    code = compile("def named(): return BASE", "a text", "exec")
    parcels, found = Parcels(dumps, loads), []
    for base in (1, 2, 1):
        names = {"__name__": "no_such_module", "BASE": base}
        exec(code, names)  # noqa: S102 - as above
        for _ in range(2):
            function, _rest = loads(dumps((parcels.of(names["named"]), None)))
            found.append(function())
    assert found == [1, 1, 2, 2, 1, 1]


def test_a_function_that_changed_while_it_was_pickled_is_not_kept():
    """Its pickle may or may not have what another thread has set meanwhile."""
    counting = Counting()

    def pickle_slowly(function):
        pickled = counting.pickle(function)
        counting.names["BASE"] += 1
        return pickled

    counting.parcels = Parcels(pickle_slowly, loads)
    assert counting.call("plain", 5) == counting.names["plain"](5) == 5 + 2 + 2
