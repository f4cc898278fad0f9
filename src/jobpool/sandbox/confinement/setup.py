"""What a new child does to itself before it runs anything of the user's.

Theory of operation. The child was forked by a middle process that has ended by now,
so that the supervisor is its parent. It must do nothing that is tied to its parent
before the supervisor's `Go`: until then the middle process may still be it.

Of the zygote's descriptors the child closes those that are jobpool's, by number.
Regular files that the application opened while it was imported stay; sockets that
it opened then are replaced by dead ones, because two processes that use one
connection corrupt it.
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

from multiprocess import context as multiprocess_context
from multiprocess import process as multiprocess_process

from jobpool.sandbox.confinement.data_limit import signed
from jobpool.sandbox.metering.sampling import backstop_bytes
from jobpool.sandbox.system.procfs import data_bytes

OOM_SCORE_RAISE = 500
"""The kernel shall take a child, and not the supervisor, when memory runs out."""
OOM_SCORE_MAX = 1000


def close_fds(fds: Iterable[int]) -> None:
    """Close descriptors by number; one that is closed already is no matter."""
    for fd in fds:
        with contextlib.suppress(OSError):
            close(fd)


def replace_sockets(fds: Iterable[int]) -> None:
    """Put a dead socket in the place of each of these."""
    fds = list(fds)
    if not fds:
        return
    dead, other = socket.socketpair()
    other.close()
    for fd in fds:
        os.dup2(dead.fileno(), fd, inheritable=False)
    dead.close()


def redirect(output_fd: int) -> None:
    """Read from /dev/null, write to the output capture, line by line."""
    point_input()
    read_stdin()
    point_output(output_fd)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A crash shall not take what was printed before it along.
            stream.reconfigure(line_buffering=True, errors="backslashreplace")


def read_stdin() -> None:
    """Let sys.stdin read from stdin. A child's does so since it was a zygote's."""
    if not _reads_stdin(sys.stdin):  # multiprocess may have it on another descriptor
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives on


def _reads_stdin(stream: object) -> bool:
    try:
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == 0
    except (OSError, ValueError):  # it is closed, or of no file
        return False


def point_input() -> None:
    """Put /dev/null in the place of stdin."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    if null != 0:
        os.dup2(null, 0)
        os.close(null)
    else:
        os.set_inheritable(null, True)


def point_output(output_fd: int) -> None:
    """Put the output capture in the place of stdout and stderr."""
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)


def set_limits(memory_bytes: int) -> None:
    """Give up core dumps, and memory without end.

    Args:
        memory_bytes: the highest memory limit that an attempt may have here; the
            bound is loosely above it. 0: no bound.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = signed(data_bytes() + backstop_bytes(memory_bytes))
        if hard == resource.RLIM_INFINITY or wanted < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def raise_oom_score() -> None:
    """Be what the kernel ends first when the machine's memory is gone."""
    score = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    raised = min(OOM_SCORE_MAX, int(os.read(score, 16)) + OOM_SCORE_RAISE)
    os.pwrite(score, b"%d" % raised, 0)
    os.close(score)


def ignore_signal(_signum: int, _frame: FrameType | None) -> None:
    """Do nothing: unlike SIG_IGN this does not reach the programs that a job runs."""


def set_signals(
    soft_timeout: Callable[[int, FrameType | None], Any],
    soft_memory: Callable[[int, FrameType | None], Any],
) -> None:
    """Leave ending to the supervisor, and listen for the soft limits."""
    # Not by way of the enums: each child would pay for their first use.
    _signal.signal(signal.SIGTERM, ignore_signal)
    _signal.signal(signal.SIGINT, ignore_signal)
    # The kernel's, about a descriptor that an earlier attempt may have left open.
    _signal.signal(signal.SIGIO, ignore_signal)
    _signal.signal(signal.SIGUSR1, soft_timeout)
    _signal.signal(signal.SIGURG, soft_memory)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def release_signals() -> None:
    """Undo `set_signals` in a process that a handler forks.

    Its parent ends it with SIGTERM (multiprocessing does), and waits for that.
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
    """Write all Python stacks there on a fatal signal and on SIGUSR2.

    The handler is C: it works while an extension holds the interpreter.
    """
    faulthandler.enable(file=stack_fd, all_threads=True)
    faulthandler.register(signal.SIGUSR2, file=stack_fd, all_threads=True)


def forget_multiprocess() -> None:
    """Let handlers use multiprocess as in a program of their own.

    As a daemon's copy they could not have children, and would be held to the
    zygote's start method.
    """
    multiprocess_process.current_process()._config["daemon"] = False  # noqa: SLF001 - no public way
    multiprocess_context._default_context._actual_context = None  # noqa: SLF001 - no public way
