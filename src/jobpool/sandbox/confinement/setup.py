"""What a new child does to itself before it runs any of the user's code.

Theory of operation. The child is forked by a middle process that then exits, which
makes the supervisor its parent. Until the supervisor's `Go` arrives, the middle process
may still be the parent, so the child must do nothing before then that depends on its
parent.

The child closes the zygote's descriptors that belong to jobpool, by number. Regular
files that the application opened during import stay open. Sockets that it opened during
import are replaced by dead ones, because two processes sharing one connection corrupt
it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed does not know it
import contextlib
import faulthandler
import io
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from os import close  # before an application can replace it
from types import FrameType
from typing import Any

from jobpool.sandbox.confinement.data_limit import signed
from jobpool.sandbox.metering.sampling import backstop_bytes
from jobpool.sandbox.system.procfs import data_bytes

OOM_SCORE_RAISE = 500
"""Makes the OOM killer choose a child rather than the supervisor."""
OOM_SCORE_MAX = 1000


def close_fds(fds: Iterable[int]) -> None:
    """Close descriptors by number; those already closed are ignored."""
    for fd in fds:
        with contextlib.suppress(OSError):
            close(fd)


def replace_sockets(fds: Iterable[int]) -> None:
    """Replace each of these descriptors by a socket whose peer is closed."""
    fds = list(fds)
    if not fds:
        return
    dead, other = socket.socketpair()
    other.close()
    for fd in fds:
        os.dup2(dead.fileno(), fd, inheritable=False)
    dead.close()


def redirect(output_fd: int) -> None:
    """Read from /dev/null, and write to the output capture line by line."""
    point_input()
    read_stdin()
    point_output(output_fd)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # So that what was printed before a crash is not lost.
            stream.reconfigure(line_buffering=True, errors="backslashreplace")


def read_stdin() -> None:
    """Make sys.stdin read descriptor 0.

    A child inherits such a stream from its zygote.
    """
    if not _reads_stdin(sys.stdin):  # an application may replace it
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives on


def _reads_stdin(stream: object) -> bool:
    try:
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == 0
    except (OSError, ValueError):  # closed, or not backed by a file
        return False


def point_input() -> None:
    """Replace descriptor 0 by /dev/null."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    if null != 0:
        os.dup2(null, 0)
        os.close(null)
    else:
        os.set_inheritable(null, True)


def point_output(output_fd: int) -> None:
    """Replace descriptors 1 and 2 by the output capture."""
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)


def set_limits(memory_bytes: int) -> None:
    """Disable core dumps, and bound the data segment.

    Args:
        memory_bytes: the highest memory limit of this child's attempts; the bound is
            loosely above it. 0: no bound.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = signed(data_bytes() + backstop_bytes(memory_bytes))
        if hard == resource.RLIM_INFINITY or wanted < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def raise_oom_score() -> None:
    """Make this process the OOM killer's first choice when memory runs out."""
    score = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    raised = min(OOM_SCORE_MAX, int(os.read(score, 16)) + OOM_SCORE_RAISE)
    os.pwrite(score, b"%d" % raised, 0)
    os.close(score)


def ignore_signal(_signum: int, _frame: FrameType | None) -> None:
    """Do nothing; unlike SIG_IGN, programs that a job runs do not inherit this."""


def set_signals(
    soft_timeout: Callable[[int, FrameType | None], Any],
    soft_memory: Callable[[int, FrameType | None], Any],
) -> None:
    """Handle the soft limits, and leave it to the supervisor to end the child."""
    # Not through the enums of `signal`: every child would pay for their first use.
    _signal.signal(signal.SIGTERM, ignore_signal)
    _signal.signal(signal.SIGINT, ignore_signal)
    # Sent by the kernel about a descriptor that an earlier attempt may have left open.
    _signal.signal(signal.SIGIO, ignore_signal)
    _signal.signal(signal.SIGUSR1, soft_timeout)
    _signal.signal(signal.SIGURG, soft_memory)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def release_signals() -> None:
    """Undo `set_signals` in a process that a handler forks.

    Its parent may end it with SIGTERM, as multiprocessing does, and wait for its end.
    """
    for signum, default in (
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGIO, signal.SIG_DFL),
    ):
        if signal.getsignal(signum) is ignore_signal:
            signal.signal(signum, default)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.signal(signal.SIGURG, signal.SIG_DFL)


def write_stacks_to(stack_fd: int) -> None:
    """Write all Python stacks to a descriptor on a fatal signal and on SIGUSR2.

    The handler is C, so it works while an extension holds the GIL.
    """
    faulthandler.enable(file=stack_fd, all_threads=True)
    faulthandler.register(signal.SIGUSR2, file=stack_fd, all_threads=True)
