"""Beasts whose exceptions act on whatever inspects them."""

# Written as users write:
# ruff: noqa: PLE0307

import time

from beasts import TIMED_OUT, TIMEOUT, beast, failed


@beast(failed("__str__ raised"))
def text_raises():
    class Unprintable(Exception):
        def __str__(self):
            raise RuntimeError

    raise Unprintable


@beast(TIMED_OUT, timeout=TIMEOUT)
def text_hangs():
    class Slow(Exception):
        def __str__(self):
            time.sleep(1000)

    raise Slow


@beast(failed("")._replace(outcome="failed"))
def text_is_no_text():
    class Wrong(Exception):
        def __str__(self):
            return 7

    raise Wrong


@beast(failed("SystemExit"))
def text_exits():
    class Exits(Exception):
        def __str__(self):
            raise SystemExit(0)

        __repr__ = __str__

    raise Exits


@beast(failed("ValueError: xxx"))
def text_is_huge():
    raise ValueError("x" * (8 << 20))


@beast(failed("ValueError"))
def text_of_controls():
    raise ValueError("\x00\x1b[31m\r\n\ud800\u202e" * 100)


@beast(failed("ValueError: last"))
def deep_chain():
    error = None
    for number in range(5000):
        made = ValueError(number)
        made.__cause__ = error
        error = made
    raise ValueError("last") from error


@beast(failed("ValueError: ring"))
def ring_of_causes():
    first, second = ValueError("ring"), ValueError("ring")
    first.__cause__, second.__cause__ = second, first
    raise first


@beast(failed("ExceptionGroup"))
def nest_of_groups():
    error = ValueError("inmost")
    for _ in range(2000):
        error = ExceptionGroup("nest", [error])
    raise error


@beast(failed("RecursionError"))
def endless_recursion():
    endless_recursion()


@beast(failed("Nameless"))
def class_without_a_name():
    class Nameless(Exception):
        __module__ = None

    raise Nameless("x")


@beast(failed("Awkward"))
def class_that_raises():
    class Meta(type):
        def __getattribute__(cls, name):
            raise RuntimeError(name)

        def __instancecheck__(cls, other):
            raise RuntimeError

    class Awkward(Exception, metaclass=Meta):
        pass

    raise Awkward


@beast(failed("ValueError"))
def notes_that_are_none():
    error = ValueError("noted")
    error.__notes__ = {"not": "a list", 7: object()}
    raise error


@beast(failed("SyntaxError"))
def impossible_syntax():
    error = SyntaxError("bad")
    error.lineno, error.offset, error.text = -1, 10**9, "\x00" * 1000
    error.filename = 7
    raise error


@beast(failed("StopIteration"))
def stop_iteration():
    raise StopIteration


@beast(failed(""))
async def stop_iteration_in_a_loop():
    raise StopIteration


@beast(failed("raising.NNN"))
def name_of_100_000_letters():
    raise type("N" * 100_000, (ValueError,), {})("x")


@beast(failed("MemoryError"))
def claims_to_have_no_memory():
    raise MemoryError
