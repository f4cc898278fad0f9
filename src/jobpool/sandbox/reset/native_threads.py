"""Threads of native code that outlive their attempt, as the kernel lists them.

Theory of operation. Libraries start thread pools when they are first used, and keep
them (OpenBLAS, OpenMP, Rust's rayon): without them the next job would pay again, as
would a child that replaced this one. Such a thread waits until another thread of its
process gives it work; the kernel shows that it waits without a timeout in a futex that
is private to the process. By itself it does nothing. Every other thread that was not
there at first counts as left behind by a handler.

After an operation the threads of a pool spin for more work for a while (OpenBLAS's for
some 100 ms), and threads that end take a moment. So they are waited for, once in a
child, since a thread that was seen at rest is known. While the number of threads is the
same as before, they are not examined.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from time import monotonic, sleep

from jobpool.sandbox.system.own_fds import open_own
from jobpool.sandbox.system.procfs import read

ENDING_S = 0.02
"""How long to wait for a thread that waits for something else and may be ending."""
SPINNING_S = 0.3
"""How long to wait for a thread that runs and may be spinning for work."""
_STEP_MIN_S, _STEP_MAX_S = 0.00005, 0.005
_PLACE = "/proc/self/task"
_FUTEX: Mapping[str, int] = {"x86_64": 202, "aarch64": 98}
_WAITS = {0, 9}
"""FUTEX_WAIT and FUTEX_WAIT_BITSET."""
_PRIVATE, _COMMAND = 128, 127
_OUTSIDE = (b"running", b"-1")
"""Not in a system call: on a processor, or in a page fault."""


class NativeThreads:
    """The threads of this process that were there at first or were seen at rest."""

    def __init__(self) -> None:
        self._place = open_own(_PLACE, os.O_RDONLY | os.O_DIRECTORY)
        self._known = _listed()
        self._count = self._counted()

    def left(self, until_s: float) -> str:
        """Name the threads that outlive their attempt.

        Args:
            until_s: monotonic time; a thread that is not at rest by then is named.
        """
        if self._counted() == self._count:
            return ""
        step_s, begun_s = _STEP_MIN_S, monotonic()
        while True:
            now = _listed()
            states = {thread: _state(thread) for thread in now - self._known}
            working = [state for state in states.values() if state != "rests"]
            if not working:
                self._known, self._count = now, len(now)
                return ""
            patience_s = SPINNING_S if "runs" in working else ENDING_S
            if monotonic() >= min(until_s, begun_s + patience_s):
                return f"it left threads of native code running: {len(working)}"
            sleep(step_s)
            step_s = min(2 * step_s, _STEP_MAX_S)

    def _counted(self) -> int:
        """Return how many threads there are; a directory has two links more."""
        return os.fstat(self._place).st_nlink - 2


def _listed() -> set[int]:
    return {int(name) for name in os.listdir(_PLACE)}  # noqa: PTH208 - names


def _state(thread: int) -> str:
    """Say what a thread does: "rests", "runs", or "waits" for something else.

    "rests" also for a thread that is gone, and where the kernel does not show it.
    """
    futex = _FUTEX.get(platform.machine())
    try:
        words = read(f"{_PLACE}/{thread}/syscall").split()
    except OSError:
        return "rests"
    if futex is None or not words:
        return "rests"
    if words[0] in _OUTSIDE:
        return "runs"
    number, _address, operation, _value, timeout, *_rest = (int(w, 0) for w in words)
    is_given_work = operation & _COMMAND in _WAITS and operation & _PRIVATE
    return "rests" if number == futex and is_given_work and not timeout else "waits"
