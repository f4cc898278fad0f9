"""The baseline: undoes what a handler changed, and names what cannot be undone.

Runs between attempts, so it is on the path of every job: each check is one cheap
call, and only a difference costs more. Anything named (threads, processes, a changed
priority) makes the supervisor replace the child. If no attempt follows in the same
process, the first part (`after_attempt`) is enough.

Theory of operation. After an attempt everything is restored, or there is only a quick
check of what can change without an intercepted call (`intercepted_calls`). A quick
check is enough while no call was noted, only Python's own code is loaded
(`native_code`), the next job is already here, and the last full restore was less than
`QUICK_CHECKS_S` ago. So the notes save time and prove nothing: whatever escapes them,
or what another process did to this one, is found by the next full restore. Until then
it affects only jobs that begin within `QUICK_CHECKS_S` of the last one.
"""

from __future__ import annotations

import ctypes
import locale
import os
import time

from jobpool.sandbox.confinement.scratch import Scratch
from jobpool.sandbox.reset import intercepted_calls, leftover_objects
from jobpool.sandbox.reset.after_attempt import (
    AfterAttempt,
    Restored,
    listed,
    still_there_after_grace,
)
from jobpool.sandbox.reset.checked_state import CheckedState
from jobpool.sandbox.reset.environment import Environment
from jobpool.sandbox.reset.interpreter import Interpreter
from jobpool.sandbox.reset.native_code import NativeCode
from jobpool.sandbox.reset.native_threads import NativeThreads

QUICK_CHECKS_S = 0.01
"""How long quick checks are enough after a full restore."""
_umask = os.umask  # bound before calls are intercepted: ours are not noted
_libc = ctypes.CDLL(None)
_setlocale = _libc.setlocale
_setlocale.restype = ctypes.c_char_p


class Baseline:
    """The state in which every attempt begins.

    Taken once, when the child is set up and its hooks have run.

    Args:
        output_fd: the output capture.
        stack_fd: the capture of the fault handler.
        scratch: the temporary directory, if there is one.
    """

    def __init__(self, output_fd: int, stack_fd: int, scratch: Scratch | None) -> None:
        self._after_attempt = AfterAttempt(output_fd, stack_fd, scratch)
        self._scratch = scratch
        self._is_at_home = scratch is not None and scratch.is_home
        self._names_at_first = (
            leftover_objects.leftover_names() if self._is_at_home else frozenset()
        )
        self._free_at_first = (
            leftover_objects.free_space() if self._is_at_home else None
        )
        """What was free at first; there TMPDIR is in memory."""
        self._cwd = os.getcwd()  # noqa: PTH109 - a str is what is compared
        self._umask = _umask(0o077)
        _umask(self._umask)
        self._environment = Environment()
        self._locale = _setlocale(locale.LC_ALL, None)
        self._timezone = _timezone()
        self._interpreter = Interpreter()
        self._native_code = NativeCode()
        self._native_threads = NativeThreads()
        # Last: descriptors that we open ourselves are not leaks.
        self._checked_state = CheckedState()
        self._permanent_calls = intercepted_calls.count()
        self._last_call: object = None
        """The last call whose effects were restored."""
        self._quick_until_s = 0.0
        """Until then (monotonic) a quick check may be enough."""

    def restore(
        self, *, may_be_quick: bool = False, until_s: float = float("inf")
    ) -> Restored:
        """Return to the baseline.

        Args:
            may_be_quick: a quick check may do; another call follows soon.
            until_s: monotonic time; nothing is waited for after it.
        """
        replaced = self._after_attempt.restore_builtins()
        if may_be_quick and not replaced and self._is_quick_check_enough():
            return Restored(b"", self._quick_check(), is_quick=True)
        return self._full_restore(replaced, until_s)

    def _is_quick_check_enough(self) -> bool:
        return (
            time.monotonic() < self._quick_until_s
            and self._after_attempt.is_untouched()
            # In this order: a thread that has just ended may have made a call.
            and intercepted_calls.last() is self._last_call
            and not self._native_code.may_have_come()
            and not self._checked_state.has_spent_descriptors()
        )

    def _quick_check(self) -> str:
        """Restore what changes without an intercepted call; name what cannot be."""
        self._after_attempt.disarm_python()
        self._interpreter.restore()
        self._environment.restore_object()
        surprises = [self._checked_state.changes_of_imports(), self._empty_scratch()]
        return "; ".join(filter(None, surprises))

    def _full_restore(self, replaced: str, until_s: float) -> Restored:
        """Restore everything; name what cannot be restored."""
        first_call = intercepted_calls.last()
        self._after_attempt.disarm()
        by_native_code = self._native_code.changes()  # first: it sets `is_here`
        threads, processes = self._after_attempt.left_running()
        if not threads and self._native_code.is_here:
            threads = self._native_threads.left(until_s)
        # After the wait for threads: one that was ending may have called more.
        last_call = intercepted_calls.last()
        surprises = [
            replaced,
            threads,
            processes,
            self._checked_state.changes(
                after_calls=last_call is not self._last_call,
                by_native_code=self._native_code.is_here,
            ),
            by_native_code,
            self._permanent_changes(),
        ]
        self._interpreter.restore()
        self._restore_process()
        output = self._after_attempt.take_output()
        surprises.append(self._empty_scratch())
        # Last, so that a restore that was cut short is repeated. What an ending thread
        # called since the start is restored next time.
        self._last_call = first_call
        self._quick_until_s = time.monotonic() + QUICK_CHECKS_S
        return Restored(output, "; ".join(filter(None, surprises)))

    def _empty_scratch(self) -> str:
        """Empty the temporary directory; name what is left outside of it."""
        if self._scratch is None:
            return ""
        if self._scratch.clean():
            self._environment.accept()
        self._scratch.point_tempfile()
        if not self._is_at_home:
            return ""
        self._scratch.go_home()
        return self._left_outside() or self._kept_space()

    def _restore_process(self) -> None:
        _umask(self._umask)
        if not self._is_at_home:  # `_empty_scratch` goes home
            self._restore_directory()
        self._environment.restore()
        if _timezone() != self._timezone:
            time.tzset()  # reads the restored TZ
        if _setlocale(locale.LC_ALL, None) != self._locale:
            locale.setlocale(locale.LC_ALL, os.fsdecode(self._locale))

    def _restore_directory(self) -> None:
        try:
            moved = os.getcwd() != self._cwd  # noqa: PTH109 - a str is what is compared
        except FileNotFoundError:
            moved = True  # the handler deleted its working directory
        if moved:
            os.chdir(self._cwd)

    def _permanent_changes(self) -> str:
        if intercepted_calls.count() == self._permanent_calls:
            return ""
        return f"it called {intercepted_calls.permanent_since(self._permanent_calls)}"

    def _left_outside(self) -> str:
        left = leftover_objects.leftover_names() - self._names_at_first
        names = listed(sorted(left))
        return f"it left outside of its directory: {names}" if left else ""

    def _kept_space(self) -> str:
        room = self._free_at_first
        if room is None or not room.kept(leftover_objects.free_space()):
            return ""
        # A process of the attempt that is just ending still holds its files.
        still_there_after_grace(lambda: bool(room.kept(leftover_objects.free_space())))
        return room.kept(leftover_objects.free_space())


def _timezone() -> tuple[object, ...]:
    """Return the process's time zone; names alone do not identify it."""
    return time.tzname, time.timezone, time.altzone
