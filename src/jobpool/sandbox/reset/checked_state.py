"""State of the process that is checked and not restored: a change is named.

The supervisor replaces a child whose state has changed. Some of it could be restored,
but a handler that has changed its user, say, may have left more behind than is known
here. Runs between attempts, so what cannot have changed is not checked: Python alone
makes no prctl(2), and `intercepted_calls` notes when it sets a limit or a user.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from jobpool.sandbox.confinement.data_limit import is_signed
from jobpool.sandbox.system.own_fds import open_own

_DESCRIPTORS_MORE_MAX = 64
"""Up to here growth may be caches that fill; beyond it is a leak."""
_PR_GET_DUMPABLE, _PR_GET_TIMERSLACK, _PR_GET_CHILD_SUBREAPER = 3, 30, 37
_LIMITS = (
    # Without RLIMIT_DATA, which the supervisor moves: it is checked separately.
    resource.RLIMIT_AS,
    resource.RLIMIT_CPU,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_STACK,
)
_prctl = ctypes.CDLL(None).prctl  # at import: otherwise each child pays for it


def _root() -> tuple[int, int]:
    root = os.stat("/")  # noqa: PTH116 - twice as fast
    return root.st_dev, root.st_ino


def _works(read: Callable[[], Any]) -> bool:
    """Say whether the C library has a call: musl has no sched_getscheduler."""
    try:
        read()
    except OSError:
        return False
    return True


_WATCHED: tuple[tuple[str, Callable[[], Any]], ...] = tuple(
    (what, read)
    for what, read in (
        ("the cores that it runs on", partial(os.sched_getaffinity, 0)),
        ("how it is scheduled", partial(os.sched_getscheduler, 0)),
        ("how it is scheduled", partial(_prctl, _PR_GET_TIMERSLACK)),
    )
    if _works(read)
)
"""Checked after every attempt, a quick call each: other processes may change it."""
_WATCHED_AFTER_CALLS: tuple[tuple[str, Callable[[], Any]], ...] = (
    *(("its limits", partial(resource.getrlimit, limit)) for limit in _LIMITS),
    ("its user or groups", os.getresuid),
    ("its user or groups", os.getresgid),
    ("its user or groups", os.getgroups),
    ("its root directory", _root),
    ("how it is scheduled", partial(_prctl, _PR_GET_DUMPABLE)),
)
"""What only an intercepted call, or code that is not Python, can change."""


class CheckedState:
    """The state of this process as it is now, to be compared with later."""

    def __init__(self) -> None:
        self._finders = list(sys.meta_path)
        self._modules = len(sys.modules)
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self._fds = open_own("/proc/self/fd", os.O_RDONLY)
        self._data = resource.getrlimit(resource.RLIMIT_DATA)
        self._adopts = ctypes.c_int()
        self._adopts_ref = ctypes.byref(self._adopts)
        self._watched = _Watch(_WATCHED)
        self._watched_after_calls = _Watch(_WATCHED_AFTER_CALLS)
        self._descriptors = self._open_descriptors()

    def changes(self, *, after_calls: bool, by_native_code: bool) -> str:
        """Name what has changed and is not restored.

        Args:
            after_calls: an intercepted call may have changed any of it.
            by_native_code: code that is not Python's own may have changed anything.
        """
        found = self._watched.changes()
        if after_calls or by_native_code:
            found += self._watched_after_calls.changes()
            if (data := resource.getrlimit(resource.RLIMIT_DATA)) != self._data:
                if data[1] != self._data[1] or not is_signed(data[0]):
                    found.append("it changed its limit of data")
                self._data = data
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        if priority != self._priority:
            found.append(f"it changed its priority from {self._priority} to {priority}")
        if (more := self._more_descriptors()) > _DESCRIPTORS_MORE_MAX:
            found.append(f"its process has {more} descriptors more than at first")
        if by_native_code and not self._adopts_orphans():
            found.append("it let its left-over processes escape")
        found.append(self.changes_of_imports())
        return "; ".join(filter(None, found))

    def has_spent_descriptors(self) -> bool:
        """Say whether so many are open that the next attempt may run out."""
        return self._more_descriptors() > _DESCRIPTORS_MORE_MAX

    def changes_of_imports(self) -> str:
        """Name what was removed of the modules and of what finds them."""
        found = []
        if sys.meta_path != self._finders and not self._finds_modules():
            found.append("it took away what finds modules")
        if (modules := len(sys.modules)) < self._modules:
            found.append("it took away modules")
        self._modules = modules
        return "; ".join(found)

    def _adopts_orphans(self) -> bool:
        _prctl(_PR_GET_CHILD_SUBREAPER, self._adopts_ref)
        return bool(self._adopts.value)

    def _more_descriptors(self) -> int:
        return self._open_descriptors() - self._descriptors

    def _open_descriptors(self) -> int:
        """Return how many descriptors are open; 0 before Linux 6.2."""
        return os.fstat(self._fds).st_size

    def _finds_modules(self) -> bool:
        return all(finder in sys.meta_path for finder in self._finders)


class _Watch:
    """What the kernel reports now, to be compared with later."""

    def __init__(self, watched: tuple[tuple[str, Callable[[], Any]], ...]) -> None:
        self._names, self._reads = zip(*watched, strict=True)
        self._before = [read() for read in self._reads]

    def changes(self) -> list[str]:
        """Name everything that differs, once each."""
        now = [read() for read in self._reads]
        if now == self._before:
            return []
        answers = zip(self._names, now, self._before, strict=True)
        changed = (what for what, one, before in answers if one != before)
        return [f"it changed {what}" for what in dict.fromkeys(changed)]
