"""The restore after every attempt, whatever comes next in its process.

Our own code continues there, if only to report the attempt's end, and an attempt has
ended only when nothing of it runs any more. Whatever else a handler changed matters
only to attempts that follow in the same process (`baseline`).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed does not know it
import _thread
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from jobpool.sandbox.confinement import setup
from jobpool.sandbox.confinement.scratch import Scratch
from jobpool.sandbox.reset import builtin_functions
from jobpool.sandbox.reset.streams import Streams
from jobpool.sandbox.system.own_fds import identity_of, require
from jobpool.sandbox.system.procfs import command_name, listed_children_of

# Bound before calls are intercepted: ours are not noted as a handler's.
_pthread_sigmask, _set_wakeup_fd = _signal.pthread_sigmask, _signal.set_wakeup_fd
_setitimer = _signal.setitimer
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_SIGNALS = sorted(
    signal.valid_signals()
    - {signal.SIGKILL, signal.SIGSTOP, signal.SIGUSR2}
    - set(range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
)
GRACE_S = 0.02
"""How long to wait for a thread or process that is ending anyway."""
_GRACE_STEP_S = 0.001
_NAMED_MAX = 5
_RAISED_MAX = 100
"""More is no handler's: there may be no memory left for the call."""
_count_threads = _thread._count  # noqa: SLF001 - cheap, and bound before a handler runs
_waitpid = ctypes.CDLL(None).waitpid  # raises no exception without children


class Restored(NamedTuple):
    """The result of restoring a process.

    Attributes:
        output: the tail of what the attempt wrote.
        surprise: what it left behind that cannot be undone; ``""``: nothing.
        is_quick: there was only a quick check; the attempt started no process.
    """

    output: bytes
    surprise: str
    is_quick: bool = False


class AfterAttempt:
    """The state that our own code needs, taken when the child's hooks have run.

    Args:
        output_fd: the output capture.
        stack_fd: the capture of the fault handler.
        scratch: the temporary directory, if there is one.
    """

    def __init__(self, output_fd: int, stack_fd: int, scratch: Scratch | None) -> None:
        self._builtins = builtin_functions.taken()
        self._streams = Streams(output_fd)
        self._stack_fd, self._stack = stack_fd, identity_of(stack_fd)
        self._scratch = scratch
        self._handlers = [_signal.getsignal(signum) for signum in _SIGNALS]
        self._on_usr2 = _signal.getsignal(signal.SIGUSR2)
        self._mask = _pthread_sigmask(_signal.SIG_BLOCK, ())
        self._wakeup_fd = _set_wakeup_fd(-1)
        _set_wakeup_fd(self._wakeup_fd)
        self._trace, self._profile = sys.gettrace(), sys.getprofile()
        self._recursion = sys.getrecursionlimit()
        self._thread_count = _count_threads()
        self._threads = set(threading.enumerate())
        self._children = set(listed_children_of(os.getpid()))

    def restore(
        self,
        *,
        may_be_quick: bool = False,  # noqa: ARG002 - as of `Baseline`
        until_s: float = float("inf"),  # noqa: ARG002 - likewise
    ) -> Restored:
        """Restore what our own code needs to report the attempt's end."""
        surprises = [self.restore_builtins()]
        self.disarm()
        surprises += self.left_running()
        output = self.take_output()
        if self._scratch is not None:
            self._scratch.clean()
        return Restored(output, "; ".join(filter(None, surprises)))

    def restore_builtins(self) -> str:
        """Restore the functions that our own code needs; name them. Called first."""
        replaced = self._builtins.restore()
        sys.audit("jobpool.reset")  # a hook that raises at every event raises here
        return replaced

    def disarm(self) -> None:
        """Remove every hook by which the attempt's code could run inside ours."""
        self._restore_signals()
        self.disarm_python()

    def disarm_python(self) -> None:
        """Remove the hooks that are set without an intercepted call."""
        # By identity: an object that a handler has set may claim to be equal.
        if sys.gettrace() is not self._trace:
            sys.settrace(self._trace)
        if sys.getprofile() is not self._profile:
            sys.setprofile(self._profile)
        if sys.getrecursionlimit() != self._recursion:
            sys.setrecursionlimit(self._recursion)

    def is_untouched(self) -> bool:
        """Say whether no thread is left and the streams are unchanged and unused."""
        return (
            not self._has_more_threads()
            and self._streams.are_untouched()
            and not os.lseek(self._stack_fd, 0, os.SEEK_END)
        )

    def left_running(self) -> tuple[str, str]:
        """Name the threads and processes that outlive their attempt."""
        return self._left_threads(), self._left_processes()

    def take_output(self) -> bytes:
        """Restore the streams; return the tail of what the attempt wrote.

        Raises:
            OSError: a capture is not accessible any more; it was not emptied.
        """
        output = self._streams.take_output()
        require(self._stack_fd, self._stack)
        if os.lseek(self._stack_fd, 0, os.SEEK_END):
            os.ftruncate(self._stack_fd, 0)
        return output

    def _restore_signals(self) -> None:
        self._stop_timers()  # first: none fires any more once its signal may come
        set_mask(_signal.SIG_SETMASK, self._mask)
        self._stop_timers()  # what came may have set one
        handlers = [*map(_signal.getsignal, _SIGNALS)]
        if handlers != self._handlers:
            for signum, handler in zip(_SIGNALS, self._handlers, strict=True):
                if handler is not None:
                    _signal.signal(signum, handler)
        if _signal.getsignal(signal.SIGUSR2) is not self._on_usr2:
            # Ours is C code that Python does not know: it must be registered again.
            _signal.signal(signal.SIGUSR2, self._on_usr2)
            faulthandler.unregister(signal.SIGUSR2)
            setup.write_stacks_to(self._stack_fd)
        _set_wakeup_fd(self._wakeup_fd)
        faulthandler.cancel_dump_traceback_later()  # it may end the process
        if not faulthandler.is_enabled():
            setup.write_stacks_to(self._stack_fd)

    def _stop_timers(self) -> None:
        """Stop a handler's own timers: they must not fire in our code."""
        for timer in _TIMERS:
            if any(_signal.getitimer(timer)):  # it stands while its signal waits
                _setitimer(timer, 0)

    def _left_threads(self) -> str:
        if not self._has_more_threads():
            return ""
        are_left = still_there_after_grace(self._has_more_threads)
        self._stop_timers()  # such a thread may have set one
        if not are_left:
            return ""
        left = set(threading.enumerate()) - self._threads
        names = listed(sorted(thread.name for thread in left)) or "without a name"
        return f"it left threads running: {names}"

    def _has_more_threads(self) -> bool:
        return _count_threads() > self._thread_count

    def _left_processes(self) -> str:
        if not self._has_children() or not still_there_after_grace(self._has_children):
            return ""
        left = set(listed_children_of(os.getpid())) - self._children
        names = listed([f"{command_name(pid)} (pid {pid})" for pid in sorted(left)])
        return f"it left processes running: {names}" if left else ""

    def _has_children(self) -> bool:
        """Reap what has ended; say whether there are more children than at first."""
        while (ended := _waitpid(-1, None, os.WNOHANG)) > 0:
            pass
        if ended < 0:  # it has none
            return False
        if not self._children:
            return True
        return not self._children.issuperset(listed_children_of(os.getpid()))


def set_mask(how: int, signals: Collection[int]) -> None:
    """Change which signals this thread blocks; drop what a job's handlers raise then.

    Args:
        how: as for pthread_sigmask(3).
        signals: likewise.
    """
    for _ in range(_RAISED_MAX):
        try:
            _pthread_sigmask(how, signals)
        except BaseException:  # noqa: BLE001, S112 - the job has ended
            continue  # others may have come as well
        return


def still_there_after_grace(is_there: Callable[[], bool]) -> bool:
    """Say whether something that may be ending is still there a moment later."""
    deadline = time.monotonic() + GRACE_S
    while is_there():
        if time.monotonic() >= deadline:
            return True
        time.sleep(_GRACE_STEP_S)
    return False


def listed(names: list[str]) -> str:
    """Join the first few of these names, and say how many more there are."""
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
