"""Which MemoryError is caused by the memory limit, and which by the handler itself."""

import resource
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from jobpool.sandbox.child.memory_errors import memory_limit_reason
from jobpool.sandbox.confinement.data_limit import signed
from jobpool.sandbox.system.procfs import data_bytes

MIB = 2**20
GIB = 2**30
ENDLESS = 2**62
FAR = 3 * GIB
"""A limit that this process is not near, whatever other tests have taken."""
LIMIT = 2**50
"""So high that this process is not near it; nor can so much be had."""


@contextmanager
def bound(mebibytes, sign=signed):
    """Limit the data of this process, as its supervisor does."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    soft = sign(data_bytes() + mebibytes * MIB)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def error_of(act):
    try:
        act()
    except (MemoryError, ValueError, ExceptionGroup) as error:
        return error
    raise AssertionError("it was let")


class Unable(MemoryError):
    """Like numpy's: it names the size that it wanted."""

    def __init__(self, shape, itemsize):
        super().__init__("Unable to allocate")
        self.shape, self.dtype = shape, type("dtype", (), {"itemsize": itemsize})


def refused():
    return bytearray(ENDLESS)


def own():
    raise MemoryError("my own idea")


def chained():
    try:
        refused()
    except MemoryError as error:
        raise ValueError("too large a picture") from error


def again():
    kept = error_of(refused)
    raise kept


def in_a_thread():
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(refused).result()


def in_a_group(*acts):
    def act():
        raise ExceptionGroup("several", [error_of(one) for one in acts])

    return act


@pytest.mark.parametrize(
    ("act", "is_of_the_limit"),
    [
        (refused, True),
        (again, True),
        (in_a_thread, True),
        (in_a_group(lambda: int("x"), in_a_group(refused)), True),
        (own, False),
        (chained, False),
        (in_a_group(own, chained), False),
        (lambda: int("x"), False),
    ],
)
def test_an_allocation_refused_in_c_counts_as_over_the_limit(act, is_of_the_limit):
    """Not what Python code raises, nor what is only the cause of another exception."""
    with bound(100):
        said = memory_limit_reason(error_of(act), FAR)
    assert bool(said) is is_of_the_limit
    if said:
        assert said.startswith("asked for more than 3GiB with ")
        assert said.endswith(" in use, over its memory limit of 3GiB")


def test_near_the_limit_any_memory_error_counts_as_over_it():
    """Whatever raised it."""
    kept = bytearray(200 * MIB)
    said = memory_limit_reason(error_of(own), len(kept))
    assert said.startswith("raised MemoryError at ")
    assert said.endswith("near its memory limit of 200MiB")


def test_half_way_to_the_limit_is_not_near_it():
    """A MemoryError raised by the handler is a failure."""
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert memory_limit_reason(error_of(own), 2 * peak_kib * 1024) == ""


def test_without_a_known_limit_no_memory_error_counts_as_over_it():
    assert memory_limit_reason(error_of(refused), 0) == ""


def test_an_allocation_refused_by_the_machine_is_not_over_the_limit():
    """Even memory within the limit cannot be had now."""
    assert memory_limit_reason(error_of(refused), LIMIT) == ""


def test_a_limit_set_by_the_handler_is_not_ours():
    """The handler's own limit does not bear our mark."""
    with bound(20, sign=lambda size: size & ~0xFFF):
        assert memory_limit_reason(error_of(lambda: bytearray(4 * GIB)), FAR) == ""


def test_a_memory_error_from_another_process_counts_as_refused():
    """Its traceback is lost in transit."""

    class RemoteTraceback(Exception):
        pass

    error = error_of(own)
    error.__cause__ = RemoteTraceback("somewhere")
    assert memory_limit_reason(error, FAR).startswith("asked for more than 3GiB")


@pytest.mark.parametrize(
    ("error", "figure"),
    [
        (Unable((4, 2**27), 8), "4GiB"),
        (MemoryError("Unable to allocate 4.00 GiB for an array"), "4GiB"),
        (MemoryError("you tried to allocate 4294967296 bytes."), "4GiB"),
        (MemoryError("malloc of size 4294967296 failed"), "4GiB"),
        (MemoryError("in step 7"), "more than 3GiB"),
        (MemoryError("Unable to allocate 4.00 MiB"), "4MiB"),
    ],
)
def test_the_requested_size_is_reported(error, figure):
    """If the error has it: numpy's, torch's, Arrow's."""
    error.__traceback__ = error_of(refused).__traceback__
    said = memory_limit_reason(error, FAR)
    assert said.startswith(f"asked for {figure} with ")
    assert ("reserved" in said) is (figure == "4MiB")
