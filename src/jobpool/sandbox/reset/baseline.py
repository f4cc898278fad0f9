"""Undoes what a handler changed in its process, and names what cannot be undone.

Runs between attempts, so it is on the path of every job: each check is one cheap
call, and only what differs costs more. What is named (threads, processes, a changed
priority) makes the supervisor replace the child. Where no attempt follows in the same
process, its first part (`parting`) is enough.

Theory of operation. After an attempt there is a look at all of it, or only a glance:
at what can change without a call that is noted (`deeds`). A glance is enough while
nothing was noted, no code is there but Python's own (`foreign`), the next job is here
already, and the last look was less than `GLANCES_S` ago. So notes save time and prove
nothing: what gets past them, or what another process has done to this one, is met at
the next look, and until then only by jobs that begin within `GLANCES_S` of the last.
"""

from __future__ import annotations

import ctypes
import locale
import os
import time

from jobpool.sandbox.confinement.scratch import Scratch
from jobpool.sandbox.reset import intercepted_calls, leftover_objects
from jobpool.sandbox.reset.after_attempt import (
    Parting,
    Restored,
    listed,
    still_there_after_grace,
)
from jobpool.sandbox.reset.checked_state import Traits
from jobpool.sandbox.reset.environment import Environment
from jobpool.sandbox.reset.interpreter import Interpreter
from jobpool.sandbox.reset.native_code import Foreign
from jobpool.sandbox.reset.native_threads import NativeThreads

GLANCES_S = 0.01
"""After a look, glances may do for so long."""
_umask = os.umask  # before it is noted as if a handler had done it
_libc = ctypes.CDLL(None)
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
        self._parting = Parting(output_fd, stack_fd, scratch)
        self._scratch = scratch
        self._is_at_home = scratch is not None and scratch.is_home
        self._things = leftover_objects.things() if self._is_at_home else frozenset()
        self._room = leftover_objects.room() if self._is_at_home else None
        """Free at first, where TMPDIR is in memory."""
        self._cwd = os.getcwd()  # noqa: PTH109 - a str is what is compared
        self._umask = _umask(0o077)
        _umask(self._umask)
        self._environment = Environment()
        self._locale = _setlocale(locale.LC_ALL, None)
        self._timezone = _timezone()
        self._interpreter = Interpreter()
        self._foreign = Foreign()
        self._native_threads = NativeThreads()
        self._traits = Traits()  # last: what we open ourselves is nobody's leak
        self._deeds = intercepted_calls.count()
        self._last_deed: object = None
        """The last that was looked after."""
        self._look_at_s = 0.0
        """From then on (monotonic) a glance is not enough."""

    def restore(
        self, *, may_glance: bool = False, until_s: float = float("inf")
    ) -> Restored:
        """Return to the baseline.

        Args:
            may_glance: a glance may do; another call follows soon.
            until_s: monotonic time; nothing is waited for after it.
        """
        replaced = self._parting.restore_foundations()
        if may_glance and not replaced and self._is_glance_enough():
            return Restored(b"", self._glance(), at_a_glance=True)
        return self._look(replaced, until_s)

    def _is_glance_enough(self) -> bool:
        return (
            time.monotonic() < self._look_at_s
            and self._parting.is_untouched()
            # After that: a thread that has ended may have done something before.
            and intercepted_calls.last() is self._last_deed
            and not self._foreign.may_have_come()
            and not self._traits.has_spent_descriptors()
        )

    def _glance(self) -> str:
        """Put back what no call tells of; name what cannot be."""
        self._parting.compose_python()
        self._interpreter.restore()
        self._environment.restore_object()
        surprises = [self._traits.changes_of_imports(), self._empty_scratch()]
        return "; ".join(filter(None, surprises))

    def _look(self, replaced: str, until_s: float) -> Restored:
        """Put back everything; name what cannot be."""
        first_deed = intercepted_calls.last()
        self._parting.compose()
        foreign = self._foreign.changes()  # first: it sees whether there is such code
        threads, processes = self._parting.left_running()
        if not threads and self._foreign.is_here:
            threads = self._native_threads.left(until_s)
        deed = (
            intercepted_calls.last()
        )  # after that: a thread that was ending may have done more
        surprises = [
            replaced,
            threads,
            processes,
            self._traits.changes(
                after_deeds=deed is not self._last_deed,
                by_foreign_code=self._foreign.is_here,
            ),
            foreign,
            self._done_for_good(),
        ]
        self._interpreter.restore()
        self._restore_process()
        output = self._parting.take_output()
        surprises.append(self._empty_scratch())
        # Last: what was cut short is done again. And what an ending thread has done
        # since the beginning is looked after once more.
        self._last_deed = first_deed
        self._look_at_s = time.monotonic() + GLANCES_S
        return Restored(output, "; ".join(filter(None, surprises)))

    def _empty_scratch(self) -> str:
        """Put the temporary directory back; name what is left outside of it."""
        if self._scratch is None:
            return ""
        if self._scratch.clean():
            self._environment.accept()
        self._scratch.point_tempfile()
        if not self._is_at_home:
            return ""
        self._scratch.go_home()
        return self._left_things() or self._kept_room()

    def _restore_process(self) -> None:
        _umask(self._umask)
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
        if intercepted_calls.count() == self._deeds:
            return ""
        return f"it called {intercepted_calls.done_since(self._deeds)}"

    def _left_things(self) -> str:
        left = leftover_objects.things() - self._things
        names = listed(sorted(left))
        return f"it left outside of its directory: {names}" if left else ""

    def _kept_room(self) -> str:
        room = self._room
        if room is None or not room.kept(leftover_objects.room()):
            return ""
        # A process of the attempt's that ends at this moment still holds its files.
        still_there_after_grace(lambda: bool(room.kept(leftover_objects.room())))
        return room.kept(leftover_objects.room())


def _timezone() -> tuple[object, ...]:
    """Return the process's time zone: several share their names."""
    return time.tzname, time.timezone, time.altzone
