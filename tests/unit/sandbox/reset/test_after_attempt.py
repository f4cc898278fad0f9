"""What a handler left running in our own code is ended, whatever it calls itself."""

import os
import sys

import pytest

from jobpool.sandbox.reset.after_attempt import AfterAttempt


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
    nowhere = os.open(os.devnull, os.O_RDWR)
    parting = AfterAttempt(nowhere, nowhere, None)
    put(Equal())
    try:
        parting.restore_builtins()
        parting.disarm()
        assert get() is before
    finally:
        put(before)
        os.close(nowhere)
