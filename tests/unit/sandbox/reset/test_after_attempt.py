"""Code that a handler left running in our process is ended, whatever it equals."""

import os
import sys

import pytest

from jobpool.sandbox.reset.after_attempt import AfterAttempt


class Equal:
    """Equal to anything."""

    def __call__(self, *_args):
        return None

    def __eq__(self, _other):
        return True

    __hash__ = None


@pytest.mark.parametrize("which", ["trace", "profile"])
def test_a_tracer_that_equals_anything_is_removed(which):
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
