"""What a handler changed about the interpreter is put back, whatever it is."""

import sys

import pytest

from jobpool.sandbox.interpreter import Interpreter


class Equal:
    """Calls itself equal to anything."""

    def __call__(self, *_args):
        return None

    def __eq__(self, _other):
        return True

    __hash__ = None


@pytest.mark.parametrize("which", ["trace", "profile"])
def test_a_tracer_is_removed_that_calls_itself_equal(which):
    """It would run in our own code, and in the next attempt."""
    get, put = getattr(sys, f"get{which}"), getattr(sys, f"set{which}")
    before = get()
    interpreter = Interpreter()
    put(Equal())
    try:
        interpreter.restore()
        assert get() is before
    finally:
        put(before)
