"""Undoes what a handler changed in its process, and names what cannot be undone.

Runs between attempts, so it is on the path of every job: each check is one cheap
call, and only what differs costs more. What is named (threads, processes, a changed
priority) makes the supervisor replace the child.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed does not know it
import _thread
import ctypes
import faulthandler
import locale
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from jobpool.sandbox import confine, deeds, leavings
from jobpool.sandbox.environment import Environment
from jobpool.sandbox.foreign import Foreign
from jobpool.sandbox.interpreter import Interpreter
from jobpool.sandbox.procfs import command_name, listed_children_of
from jobpool.sandbox.scratch import Scratch
from jobpool.sandbox.streams import Streams
from jobpool.sandbox.traits import Traits

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_SIGNALS = sorted(
    signal.valid_signals()
    - {signal.SIGKILL, signal.SIGSTOP, signal.SIGUSR2}
    - set(range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
)
GRACE_S = 0.02
"""For a thread or process that is ending anyway."""
_GRACE_STEP_S = 0.001
_NAMED_MAX = 5
_count_threads = _thread._count  # noqa: SLF001 - the cheap one; before a handler has it
_libc = ctypes.CDLL(None)
_waitpid = _libc.waitpid  # having no children is no exception here
_setlocale = _libc.setlocale
_setlocale.restype = ctypes.c_char_p


class Baseline:
    """The state that every attempt begins in.

    Taken once, when the child is set up and its hooks have run.

    Args:
        output_fd: the output capture.
        stack_fd: the capture of the fault handler.
        scratch: the temporary directory, if there is one.
    """

    def __init__(self, output_fd: int, stack_fd: int, scratch: Scratch | None) -> None:
        self._streams = Streams(output_fd)
        self._stack_fd = stack_fd
        self._scratch = scratch
        self._is_at_home = scratch is not None and scratch.is_home
        self._things = leavings.things() if self._is_at_home else frozenset()
        self._cwd = os.getcwd()  # noqa: PTH109 - a str is what is compared
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._environment = Environment()
        self._handlers = [_signal.getsignal(signum) for signum in _SIGNALS]
        self._on_usr2 = _signal.getsignal(signal.SIGUSR2)
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        self._wakeup_fd = _signal.set_wakeup_fd(-1)
        _signal.set_wakeup_fd(self._wakeup_fd)
        self._locale = _setlocale(locale.LC_ALL, None)
        self._timezone = _timezone()
        self._interpreter = Interpreter()
        self._foreign = Foreign()
        self._traits = Traits()  # last: what we open ourselves is nobody's leak
        self._deeds = deeds.count()
        self._thread_count = _count_threads()
        self._threads = set(threading.enumerate())
        self._children = set(listed_children_of(os.getpid()))

    def restore(self) -> tuple[bytes, str]:
        """Return to the baseline.

        Returns:
            ``(output, surprise)``: the tail of what the attempt wrote, and what it
            left behind that cannot be undone, ``""`` when that is nothing.
        """
        replaced = self._traits.mend()
        sys.audit("jobpool.reset")  # who raises at every event raises at ours: here
        self._restore_signals()
        foreign = self._foreign.changes()  # first: it sees whether there is such code
        surprises = [
            replaced,
            self._left_threads(),
            self._left_processes(),
            self._traits.changes(by_foreign_code=self._foreign.is_here),
            foreign,
            self._done_for_good(),
        ]
        self._interpreter.restore()
        self._restore_process()
        output = self._streams.take_output()
        if os.lseek(self._stack_fd, 0, os.SEEK_END):
            os.ftruncate(self._stack_fd, 0)
        if self._scratch is not None:
            if self._scratch.clean():
                self._environment.accept()
            self._scratch.point_tempfile()
            if self._is_at_home:
                self._scratch.go_home()
                surprises.append(self._left_things())
        return output, "; ".join(filter(None, surprises))

    def _restore_signals(self) -> None:
        """First of all: a handler's own timer must not fire in our code."""
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)
        for timer in _TIMERS:
            if _signal.getitimer(timer)[0]:
                _signal.setitimer(timer, 0)
        handlers = [*map(_signal.getsignal, _SIGNALS)]
        if handlers != self._handlers:
            for signum, handler in zip(_SIGNALS, self._handlers, strict=True):
                if handler is not None:
                    _signal.signal(signum, handler)
        if _signal.getsignal(signal.SIGUSR2) is not self._on_usr2:
            # Ours is C code of which Python does not know: it must be put in anew.
            _signal.signal(signal.SIGUSR2, self._on_usr2)
            faulthandler.unregister(signal.SIGUSR2)
            confine.write_stacks_to(self._stack_fd)
        _signal.set_wakeup_fd(self._wakeup_fd)
        faulthandler.cancel_dump_traceback_later()  # it may end the process
        if not faulthandler.is_enabled():
            confine.write_stacks_to(self._stack_fd)

    def _restore_process(self) -> None:
        os.umask(self._umask)
        if not self._is_at_home:  # which is made anew first
            self._restore_directory()
        self._environment.restore()
        if _timezone() != self._timezone:
            time.tzset()  # by the variable that has been put back
        if _setlocale(locale.LC_ALL, None) != self._locale:
            locale.setlocale(locale.LC_ALL, os.fsdecode(self._locale))

    def _restore_directory(self) -> None:
        try:
            moved = os.getcwd() != self._cwd  # noqa: PTH109 - a str is what is compared
        except FileNotFoundError:
            moved = True  # the handler deleted the directory it stood in
        if moved:
            os.chdir(self._cwd)

    def _done_for_good(self) -> str:
        if deeds.count() == self._deeds:
            return ""
        return f"it called {deeds.done_since(self._deeds)}"

    def _left_threads(self) -> str:
        if _count_threads() <= self._thread_count:
            return ""
        if not _still_there_after_grace(lambda: _count_threads() > self._thread_count):
            return ""
        left = set(threading.enumerate()) - self._threads
        names = _listed(sorted(thread.name for thread in left)) or "without a name"
        return f"it left threads running: {names}"

    def _left_processes(self) -> str:
        if not self._has_children() or not _still_there_after_grace(self._has_children):
            return ""
        left = set(listed_children_of(os.getpid())) - self._children
        names = _listed([f"{command_name(pid)} (pid {pid})" for pid in sorted(left)])
        return f"it left processes running: {names}" if left else ""

    def _left_things(self) -> str:
        left = leavings.things() - self._things
        names = _listed(sorted(left))
        return f"it left outside of its directory: {names}" if left else ""

    def _has_children(self) -> bool:
        """Reap what has ended; say whether anything is left that the hooks did not."""
        while (ended := _waitpid(-1, None, os.WNOHANG)) > 0:
            pass
        if ended < 0:  # it has none
            return False
        if not self._children:
            return True
        return not self._children.issuperset(listed_children_of(os.getpid()))


def _still_there_after_grace(is_there: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + GRACE_S
    while is_there():
        if time.monotonic() >= deadline:
            return True
        time.sleep(_GRACE_STEP_S)
    return False


def _timezone() -> tuple[object, ...]:
    """Return the process's time zone: several share their names."""
    return time.tzname, time.timezone, time.altzone


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
