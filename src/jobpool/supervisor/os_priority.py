"""CPU priority of the supervisor, so that a busy machine enforces limits on time.

Theory of operation. Between a deadline and a death the loop is woken three times, and
each time it waits for its turn among everything else that wants a core. Where the
kernel allows it (root, CAP_SYS_NICE, RLIMIT_NICE), the loop's thread goes before
others, and so does the store thread: if a child took its core while it holds the
interpreter's lock, the loop would wait for that child, and children that wait for the
store's next jobs would wait for each other. What these threads start (threads, zygotes,
and so children) begins at 0 again: the kernel does that (SCHED_FLAG_RESET_ON_FORK). A
supervisor that was started with a niceness or a policy of its own keeps it, and so does
everything below it.

Source: sched_setattr(2).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

FIRST_NICE = -10
_SCHED_ATTR = struct.Struct("=IIQiIQQQ")
_RESET_ON_FORK = 1
_SCHED_SETATTR: Mapping[str, int] = {"x86_64": 314, "aarch64": 274}


@contextmanager
def going_first() -> Iterator[bool]:
    """Give this thread priority within the context; yield whether it has it.

    Where that is not allowed nothing changes.
    """
    is_first = _is_usual() and _set_nice(FIRST_NICE, _RESET_ON_FORK)
    try:
        yield is_first
    finally:
        if is_first:
            _set_nice(0, 0)


def _is_usual() -> bool:
    """Say whether this thread is scheduled normally; False: no, or it is unknown."""
    if sys.platform != "linux":
        return False
    try:
        policy = os.sched_getscheduler(0)
    except OSError:  # musl has none
        return False
    return policy == os.SCHED_OTHER and os.getpriority(os.PRIO_PROCESS, 0) == 0


def _set_nice(nice: int, flags: int) -> bool:
    """Set this thread's niceness; False: the kernel refuses, or lacks the call."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None:
        return False
    attr = _SCHED_ATTR.pack(_SCHED_ATTR.size, 0, flags, nice, 0, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    answer: int = libc.syscall(
        ctypes.c_long(number), ctypes.c_int(0), attr, ctypes.c_uint(0)
    )
    return answer == 0
