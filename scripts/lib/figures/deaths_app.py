"""A handler that dies in every way, for `figures` and for a test."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from jobpool import JobPool

jobs = JobPool()
MIB = 2**20


def null_pointer() -> None:
    """Dereference null."""
    ctypes.string_at(0)


def exit_silently() -> None:
    """End without a result."""
    os._exit(0)


def hang() -> None:
    """Exceed the time limit, ignoring signals."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    while True:
        pass


def hoard() -> None:
    """Exceed the memory limit, with several kinds of memory."""
    fd = os.memfd_create("hoard")
    os.ftruncate(fd, 40 * MIB)
    shared, kept = mmap.mmap(fd, 40 * MIB), []
    for place in range(0, 40 * MIB, 4096):
        shared[place] = 1
    while True:
        kept.append(b"x" * (4 * MIB))


def kill_itself() -> None:
    """Die of a signal that may look like someone else's."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def leave_files_and_abort() -> None:
    """Leave files behind, some of them open, and die."""
    for _ in range(5):
        tempfile.mkstemp()
    tempfile.mkdtemp()
    os.abort()


def leave_daemons() -> None:
    """Leave processes in sessions of their own, and succeed."""
    for _ in range(2):
        subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(1000)


def leave_daemons_and_die() -> None:
    """Leave the same processes, and die."""
    leave_daemons()
    ctypes.string_at(0)


def flood_and_raise() -> None:
    """Print more than is kept, and fail."""
    sys.stdout.write("a line\n" * 100_000)
    raise ValueError


DEATHS: tuple[Callable[[], None], ...] = (
    null_pointer,
    leave_daemons,
    exit_silently,
    hang,
    kill_itself,
    leave_daemons,
    hoard,
    flood_and_raise,
    leave_files_and_abort,
    leave_daemons,
    leave_daemons_and_die,
)
"""In this order: with frequent successes, so that no breaker slows the kind down."""
OUTCOMES = {
    "null_pointer": "crashed",
    "exit_silently": "crashed",
    "hang": "timed_out",
    "leave_daemons": "succeeded",
    "hoard": "out_of_memory",
    "kill_itself": "crashed",
    "flood_and_raise": "failed",
    "leave_files_and_abort": "crashed",
    "leave_daemons_and_die": "crashed",
}


RUN = {work.__name__: work for work in DEATHS}


@jobs.job("cpu", kind="death", memory="96MiB", max_attempts=1, max_crashes=1)
def die(way: str) -> None:
    """Die one of the deaths."""
    RUN[way]()


jobs.job("cpu", kind="death.late", timeout="0.1s", max_attempts=1)(hang)
