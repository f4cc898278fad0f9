"""Forks a child of the supervisor from a zygote, by two or three forks.

Theory of operation. The zygote forks a middle process, which forks the child and ends.
An enclosed child has an init in between: the middle process makes the namespaces and
forks the init, which forks the child and stays (`namespaces`). Each process that forks
reports to the zygote through one pipe: a pid, or an error number. The zygote waits for
all of them, and reaps the middle process, before it answers.

Functions that an application may have replaced (with gevent's, say) are not used,
except for the fork of the child itself: a replacement repairs its own state there.

At a fork Python, and each library that registers for it, repairs the copy's state:
locks, threads, random numbers. That touches, and so copies, some hundred pages, a
millisecond in all, in each process. The two processes that only fork, wait and end skip
it. The hooks that an application runs before a fork, and after it in the parent (flush
a file, close a pool), are meant for the zygote, and each copy would repeat them: they
run there as if at a fork, just before the real one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import posix
import signal
import struct
import traceback
from collections.abc import Callable
from os import close, waitpid
from typing import Any, NoReturn

from jobpool.core.isolation.measures import Enclosure
from jobpool.sandbox.confinement.namespaces import make_namespaces, run_init

_WORD = struct.Struct("<i")
_EXIT_FAILED = 1
_fork_as_is = ctypes.PyDLL(None, use_errno=True).fork
"""The C library's fork, called with the GIL held: the copy continues to hold it. Bound
here before an application can intercept it."""
_SIGNALS = signal.valid_signals()
_before: list[Callable[[], object]] = []
_after_in_parent: list[Callable[[], object]] = []
"""The hooks to run in the zygote, in the order in which they were registered."""
Entry = Callable[[tuple[int, int]], NoReturn]
"""What a forked copy runs; it takes the ends of the pipe, to close them."""


def watch_hooks() -> None:
    """Record from now on the hooks to run at a fork in the process that forks."""
    register = os.register_at_fork

    def noting(**hooks: Any) -> None:
        register(**hooks)  # first: it refuses what is not a hook
        for name, noted in (("before", _before), ("after_in_parent", _after_in_parent)):
            if name in hooks:
                noted.append(hooks[name])

    for module in (os, posix):
        vars(module)["register_at_fork"] = noting


def fork_child(run_child: Entry, enclosure: Enclosure, relay: int = -1) -> int:
    """Fork a child that is reparented to the subreaper above this process.

    Args:
        run_child: what the child runs, and never returns from.
        enclosure: the namespaces that it gets.
        relay: where its init, if it has one, reports how it ended.

    Returns:
        The pid of the child, or of its init, if it has one. The child exists by then.

    Raises:
        OSError: no memory, process or descriptor for it, or no permission for its
            namespaces.
    """

    def run_init_of_child(pipe: tuple[int, int]) -> NoReturn:
        try:
            job = _fork(os.fork, run_child, pipe)
            os.write(pipe[1], _WORD.pack(min(job, 0)))
            if job > 0:
                run_init(job, relay)
        finally:
            os._exit(_EXIT_FAILED)

    is_enclosed = enclosure is not Enclosure.NONE
    read_end, write_end = pipe = os.pipe()
    try:
        try:
            middle = _fork_with_hooks()
            if middle == 0:
                _run_middle(
                    run_init_of_child if is_enclosed else run_child, enclosure, pipe
                )
        finally:
            close(write_end)
        pid = _read_pid(read_end, words=1 + is_enclosed)
        waitpid(middle, 0)  # before the supervisor is sent the child's pid
    finally:
        close(read_end)
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    return pid


def _run_middle(entry: Entry, enclosure: Enclosure, pipe: tuple[int, int]) -> NoReturn:
    try:
        try:
            if enclosure is not Enclosure.NONE:
                make_namespaces(enclosure)
            # If there is an init to fork, nothing of the user's runs in it.
            pid = _fork(
                os.fork if enclosure is Enclosure.NONE else _fork_bare, entry, pipe
            )
        except OSError as exc:
            pid = -(exc.errno or errno.EAGAIN)
        os.write(pipe[1], _WORD.pack(pid))
    finally:
        os._exit(0)


def _fork(fork: Callable[[], int], entry: Entry, pipe: tuple[int, int]) -> int:
    """Fork; return the pid, or a negative error number."""
    try:
        pid = fork()
    except OSError as exc:
        return -(exc.errno or errno.EAGAIN)
    if pid == 0:
        entry(pipe)
    return pid


def _fork_with_hooks() -> int:
    """Fork the zygote as `_fork_bare` does, after running the zygote's hooks."""
    if _is_one_thread():
        for hook in (*reversed(_before), *_after_in_parent):
            try:
                hook()
            except Exception:  # noqa: BLE001 - reported and ignored, as by Python
                traceback.print_exc()
    return _fork_bare()


def _fork_bare() -> int:
    """Fork a process that runs nothing of the user's, by the C library.

    With other threads it forks by Python: the copy's interpreter would wait for their
    turn.

    Raises:
        OSError: the kernel refused.
    """
    if not _is_one_thread():
        return os.fork()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        # Pending signal handlers run here, and not in the copy as well.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = int(_fork_as_is())
        code = ctypes.get_errno() if pid < 0 else 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if code:
        raise OSError(code, os.strerror(code))
    return pid


def _is_one_thread() -> bool:
    """Say whether this is the only thread; False if the kernel does not show it."""
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - a count
    except OSError:
        return False


def _read_pid(read_end: int, words: int) -> int:
    """Return the pid that so many processes report together, or an error number, < 0.

    An init reports 0: its child exists.
    """
    pid = 0
    for _ in range(words):
        word = os.read(read_end, _WORD.size)
        value = _WORD.unpack(word)[0] if len(word) == _WORD.size else -errno.EAGAIN
        if value < 0:
            return int(value)
        pid = max(pid, value)
    return pid
