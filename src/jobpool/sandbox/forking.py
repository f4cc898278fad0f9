"""Forks children of the supervisor's out of a zygote: twice, or thrice.

Theory of operation. The zygote forks a middle process, which forks the children and
ends. Who was asked for together has one middle process: to make it and to end it takes
as long as to make a child, and what the zygote touches after a fork is copied anew.
A child that is to be enclosed has a middle process of its own, and an init between the
two: the middle process makes the namespaces and forks the init, which forks the child
and stays (`enclosure`). Each process that forks tells the zygote through one pipe: a
pid, or an error's number. The zygote waits for all of them, and reaps the middle
process, before it answers.

What an application may have replaced (by gevent's, say) is not used, but for the fork
of the child itself: whoever replaces that one puts its own state right in the copy.

At a fork Python, and whoever asks for it, puts the copy's state right: locks, threads,
random numbers. That touches, and so copies, some hundred pages, a millisecond in all,
in each process. The two that fork, wait and end, and look at none of it, do without.
What an application wants done before a fork, and after it in the parent (flush a file,
close a pool), is meant for the zygote, and each copy would do it anew: it is done there
as if there had been a fork, just before there is one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import posix
import signal
import struct
import traceback
from collections.abc import Callable, Sequence
from os import close, waitpid
from typing import Any, NoReturn

from jobpool.core.isolation import Enclosure
from jobpool.sandbox.enclosure import be_init, make_namespaces

_WORD = struct.Struct("<i")
_EXIT_FAILED = 1
_fork_as_is = ctypes.PyDLL(None, use_errno=True).fork
"""The C library's, called with the interpreter's lock: the copy goes on holding it. Got
here, before an application can say anything to it."""
_SIGNALS = signal.valid_signals()
_before: list[Callable[[], object]] = []
_after_in_parent: list[Callable[[], object]] = []
"""What is to be done in the zygote, in the order in which it was registered."""
Be = Callable[[tuple[int, int]], NoReturn]
"""What a forked copy does; it takes the ends of the pipe, to close them."""


def watch_hooks() -> None:
    """Note from now on what is to be done at a fork in the process that forks."""
    register = os.register_at_fork

    def noting(**hooks: Any) -> None:
        register(**hooks)  # first: it refuses what is no hook
        for name, noted in (("before", _before), ("after_in_parent", _after_in_parent)):
            if name in hooks:
                noted.append(hooks[name])

    for module in (os, posix):
        vars(module)["register_at_fork"] = noting


def fork_children(children: Sequence[Be]) -> list[int]:
    """Fork children that fall to the subreaper above this process.

    Args:
        children: what each does, and never returns from.

    Returns:
        Of each its pid, or an error's number as a negative one: there is no memory,
        process or descriptor for it.
    """

    def fork_all(pipe: tuple[int, int]) -> None:
        for be in children:
            os.write(pipe[1], _WORD.pack(_fork(os.fork, be, pipe)))

    return _fork_middle(fork_all, words=len(children))


def fork_enclosed(be_child: Be, enclosure: Enclosure, relay: int) -> int:
    """Fork a child in namespaces of its own, with an init that falls to the subreaper.

    Args:
        be_child: what the child does, and never returns from.
        enclosure: which namespaces it gets.
        relay: where its init tells how it ended.

    Returns:
        The pid of the init, or an error's number as a negative one: there is no memory,
        process or descriptor for it, or it may not have its namespaces. The child
        exists by then.
    """

    def be_init_of_it(pipe: tuple[int, int]) -> NoReturn:
        try:
            job = _fork(os.fork, be_child, pipe)
            os.write(pipe[1], _WORD.pack(min(job, 0)))
            if job > 0:
                be_init(job, relay)
        finally:
            os._exit(_EXIT_FAILED)

    def fork_init(pipe: tuple[int, int]) -> None:
        try:
            make_namespaces(enclosure)
            # Nothing of the user's runs in it.
            pid = _fork(_fork_bare, be_init_of_it, pipe)
        except OSError as exc:
            pid = -(exc.errno or errno.EAGAIN)
        os.write(pipe[1], _WORD.pack(pid))

    # The init's pid, and 0 of the init: its child is there. Or what went wrong.
    told = _fork_middle(fork_init, words=2)
    return min(told) if min(told) < 0 else max(told)


def _fork_middle(fork: Callable[[tuple[int, int]], None], words: int) -> list[int]:
    """Let a middle process fork and end; return what it and its own have told."""
    try:
        read_end, write_end = pipe = os.pipe()
        try:
            try:
                middle = _fork_told()
                if middle == 0:
                    _be_middle(fork, pipe)
            finally:
                close(write_end)
            told = [_read_word(read_end) for _ in range(words)]
            waitpid(middle, 0)  # before the supervisor hears of its children
        finally:
            close(read_end)
    except OSError as exc:
        return [-(exc.errno or errno.EAGAIN)] * words
    return told


def _be_middle(
    fork: Callable[[tuple[int, int]], None], pipe: tuple[int, int]
) -> NoReturn:
    try:
        fork(pipe)
    finally:
        os._exit(0)


def _fork(fork: Callable[[], int], be: Be, pipe: tuple[int, int]) -> int:
    """Fork; return the pid, or an error's number as a negative one."""
    try:
        pid = fork()
    except OSError as exc:
        return -(exc.errno or errno.EAGAIN)
    if pid == 0:
        be(pipe)
    return pid


def _fork_told() -> int:
    """Fork out of the zygote, as `_fork_bare`; what is to be done there comes first."""
    if _is_one_thread():
        for hook in (*reversed(_before), *_after_in_parent):
            try:
                hook()
            except Exception:  # noqa: BLE001 - as Python: it is told, and nothing ends
                traceback.print_exc()
    return _fork_bare()


def _fork_bare() -> int:
    """Fork a process that runs nothing of the user's, as the C library does it.

    With other threads it takes Python's way: the copy's interpreter would wait for them
    to take their turn.

    Raises:
        OSError: the kernel refused.
    """
    if not _is_one_thread():
        return os.fork()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        # What a handler has to do by now is done here, and not in the copy as well.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = int(_fork_as_is())
        code = ctypes.get_errno() if pid < 0 else 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if code:
        raise OSError(code, os.strerror(code))
    return pid


def _is_one_thread() -> bool:
    """Say whether nothing runs beside; False where the kernel does not tell."""
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - a count
    except OSError:
        return False


def _read_word(read_end: int) -> int:
    """Return what is told next; an error's number, < 0, if nobody is left to tell."""
    word = os.read(read_end, _WORD.size)
    return int(_WORD.unpack(word)[0]) if len(word) == _WORD.size else -errno.EAGAIN
