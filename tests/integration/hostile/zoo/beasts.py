"""The table of the zoo: each hostile handler beside the verdict that it must get.

The application of the zoo's supervisors and the test import the same modules: the
former runs the handlers, the latter reads `BEASTS`.
"""

import ctypes
import functools
import mmap
import platform
import time
from collections.abc import Callable
from typing import NamedTuple

from jobpool import JobPool

jobs = JobPool()
TIMEOUT = "0.4s"
"""Of beasts that hang: long enough to hang well."""
MEMORY = "96MiB"
"""Of beasts that eat."""
MACHINE = platform.machine()
libc = ctypes.CDLL(None, use_errno=True)


class Verdict(NamedTuple):
    """What the store must record about the job. None: it does not matter."""

    outcome: str
    reason: str = ""
    """A part of it."""
    error: str = ""
    """A part of ``class: message``."""
    signal: int | None = None
    exit_code: int | None = None
    output: str = ""
    """A part of the output that is kept with the attempt."""
    stack: str = ""
    """A part of the stack at the kill."""

    @property
    def state(self):
        """The job's state: each has one attempt, and one crash."""
        if self.outcome in ("out_of_memory", "crashed"):
            return "quarantined"
        return "succeeded" if self.outcome == "succeeded" else "dead"


class Beast(NamedTuple):
    """One hostile handler."""

    kind: str
    pool: str
    verdict: Verdict
    at: dict[str, Verdict | None]
    """What differs at a level, or for a ``user`` or ``root``. None: not run there."""

    def verdict_at(self, *names):
        """Return the verdict at a level for a user, or None."""
        return next((self.at[n] for n in names if n in self.at), self.verdict)


BEASTS: list[Beast] = []


def beast(
    verdict: Verdict,
    *,
    pool: str = "cpu",
    timeout: str = "30s",
    memory: str = "512MiB",
    at: dict[str, Verdict | None] | None = None,
    **options,
) -> Callable:
    """Put a handler into the zoo."""

    def enter(function):
        kind = f"zoo.{function.__name__}"
        BEASTS.append(Beast(kind, pool, verdict, at or {}))
        return jobs.job(
            pool,
            kind=kind,
            timeout=timeout,
            memory=memory,
            max_attempts=1,
            max_crashes=1,
            **options,
        )(function)

    return enter


SUCCEEDED = Verdict("succeeded")
TIMED_OUT = Verdict("timed_out", "killed at its time limit of 400ms", signal=9)
OUT_OF_MEMORY = Verdict("out_of_memory", "over its memory limit of 96MiB", signal=9)


def failed(error, **more):
    """The handler raised, or returned what cannot be stored."""
    return Verdict("failed", error=error, **more)


def out_of_memory(reason, **more):
    """An allocation was refused, and the process lives."""
    return Verdict("out_of_memory", reason, **more)


def crashed(signum, reason="killed by", **more):
    """It killed itself with a signal."""
    return Verdict("crashed", reason, signal=int(signum), **more)


def exited(code):
    """It exited without a report."""
    return Verdict("crashed", f"exited with {code} without a result", exit_code=code)


def hangs(function=None, **options):
    """Add a handler that never returns."""
    enter = beast(TIMED_OUT, timeout=TIMEOUT, **options)
    return enter if function is None else enter(function)


def eats(function=None, **options):
    """Add a handler that takes memory without end."""

    def enter(function):
        @functools.wraps(function)
        def eat():
            try:
                function()
            except MemoryError:
                # A busy supervisor comes later than twice the limit is refused. What
                # was taken is held by the exception.
                time.sleep(60)

        return beast(OUT_OF_MEMORY, memory=MEMORY, **options)(eat)

    return enter if function is None else enter(function)


def succeeds(function=None, **options):
    """Add a handler whose damage affects only its child, if anything."""
    enter = beast(SUCCEEDED, **options)
    return enter if function is None else enter(function)


def execute(code):
    """Execute machine code, if it is known for this machine."""
    area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(code[MACHINE])
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    ctypes.CFUNCTYPE(None)(address)()


def system_call(name, *arguments):
    """Make a system call that Python has no function for; return its errno."""
    numbers = {
        "clone": {"x86_64": 56, "aarch64": 220},
        "pidfd_getfd": {"x86_64": 438, "aarch64": 438},
        "ptrace": {"x86_64": 101, "aarch64": 117},
        "io_uring_setup": {"x86_64": 425, "aarch64": 425},
    }
    words = [ctypes.c_long(word) for word in (numbers[name][MACHINE], *arguments)]
    ctypes.set_errno(0)
    answer = libc.syscall(*words)
    return answer, ctypes.get_errno()
