"""Undoes what a handler changed in its process, and names what cannot be undone.

Runs between attempts, so it is on the path of every job: each check is one cheap
call, and only what differs costs more. What is named (threads, processes, a changed
priority) makes the supervisor replace the child. Where no attempt follows in the same
process, its first part (`parting`) is enough.
"""

from __future__ import annotations

import ctypes
import locale
import os
import time

from jobpool.sandbox import deeds, leavings
from jobpool.sandbox.environment import Environment
from jobpool.sandbox.foreign import Foreign
from jobpool.sandbox.interpreter import Interpreter
from jobpool.sandbox.parting import Parting, listed
from jobpool.sandbox.scratch import Scratch
from jobpool.sandbox.traits import Traits

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
        self._things = leavings.things() if self._is_at_home else frozenset()
        self._cwd = os.getcwd()  # noqa: PTH109 - a str is what is compared
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._environment = Environment()
        self._locale = _setlocale(locale.LC_ALL, None)
        self._timezone = _timezone()
        self._interpreter = Interpreter()
        self._foreign = Foreign()
        self._traits = Traits()  # last: what we open ourselves is nobody's leak
        self._deeds = deeds.count()

    def restore(self) -> tuple[bytes, str]:
        """Return to the baseline.

        Returns:
            ``(output, surprise)``: the tail of what the attempt wrote, and what it
            left behind that cannot be undone, ``""`` when that is nothing.
        """
        replaced = self._parting.mend()
        self._parting.compose()
        foreign = self._foreign.changes()  # first: it sees whether there is such code
        running = self._parting.left_running()
        seen = deeds.seen()  # after that: a thread that was ending may have done more
        surprises = [
            replaced,
            *running,
            self._traits.changes(
                after_deeds=bool(seen), by_foreign_code=self._foreign.is_here
            ),
            foreign,
            self._done_for_good(),
        ]
        self._interpreter.restore()
        self._restore_process()
        output = self._parting.take_output()
        if self._scratch is not None:
            if self._scratch.clean():
                self._environment.accept()
            self._scratch.point_tempfile()
            if self._is_at_home:
                self._scratch.go_home()
                surprises.append(self._left_things())
        deeds.forget(seen)  # last: what was cut short is done again
        return output, "; ".join(filter(None, surprises))

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

    def _left_things(self) -> str:
        left = leavings.things() - self._things
        names = listed(sorted(left))
        return f"it left outside of its directory: {names}" if left else ""


def _timezone() -> tuple[object, ...]:
    """Return the process's time zone: several share their names."""
    return time.tzname, time.timezone, time.altzone
