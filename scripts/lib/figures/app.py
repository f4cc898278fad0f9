"""Handlers that hang, crash and grow in the ways that `figures` measures."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from jobpool import JobPool

try:
    import numpy as np
except ImportError:  # blocks are then made by the interpreter
    np = None

LIMIT_S = 0.1
DIRECTORY = os.environ["FIGURES_DIRECTORY"]
jobs = JobPool()


def note(name: str) -> None:
    """Append a name and the monotonic time to the witness file."""
    fd = os.open(f"{DIRECTORY}/stamps", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{name} {time.monotonic()!r}\n".encode())
    os.close(fd)


@jobs.job("cpu", kind="warm_up")
def warm_up() -> None:
    """Do nothing, once."""


@jobs.job("cpu", kind="noop")
def noop() -> None:
    """Do nothing, often."""


@jobs.job("cpu", kind="stamp")
def stamp() -> None:
    """Note the start of a handler."""
    note("stamp")


@jobs.job("cpu", kind="crash", max_attempts=1)
def crash() -> None:
    """Dereference null."""
    note("crash")
    ctypes.string_at(0)


@jobs.job("cpu", kind="busy", timeout=LIMIT_S, max_attempts=1)
def busy() -> None:
    """Loop in Python."""
    while True:
        pass


@jobs.job("cpu", kind="gil", timeout=LIMIT_S, max_attempts=1)
def gil() -> None:
    """Hold the interpreter's lock in C."""
    sum(range(10**12))


@jobs.job("cpu", kind="deaf", timeout=LIMIT_S, max_attempts=1)
def deaf() -> None:
    """Ignore every signal that can be ignored, and sleep."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


@jobs.job("cpu", kind="stopped", timeout=LIMIT_S, max_attempts=1)
def stopped() -> None:
    """Stop itself, so that no signal but SIGKILL is delivered."""
    os.kill(os.getpid(), signal.SIGSTOP)


@jobs.job("cpu", kind="hog_small", memory="256MiB", max_attempts=1)
def hog_small() -> None:
    """Allocate 1 MiB after another at full speed."""
    held = []
    while True:
        held.append(bytearray(2**20))


@jobs.job("cpu", kind="hog_large", memory="256MiB", max_attempts=1)
def hog_large() -> None:
    """Allocate 64 MiB after another at full speed."""
    held = []
    while True:
        held.append(bytearray(2**26))


@jobs.job("cpu", kind="hog_blocks", memory="256MiB", max_attempts=1)
def hog_blocks() -> None:
    """Let C code fill 64 MiB after another: numpy's, or the interpreter's own."""
    fill = np.ones if np else b"1".__mul__
    size = 2**23 if np else 2**26
    held = []
    while True:
        held.append(fill(size))


@jobs.job("cpu", kind="hog_objects", memory="256MiB", max_attempts=1)
def hog_objects() -> None:
    """Make objects of some ten bytes at full speed."""
    held = []
    while True:
        held.append((len(held), str(len(held))))
