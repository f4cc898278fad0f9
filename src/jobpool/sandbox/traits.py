"""What a handler can change about its process that is not put back: it is named.

The supervisor replaces a child whose traits have changed. Some could be put back,
but who has changed its user, say, may have left more behind than is known here. Runs
between attempts: all checks together cost some 25 µs.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from types import ModuleType
from typing import Any

_DESCRIPTORS_MORE_MAX = 64
"""Some growth is caches that fill; more is a leak."""
_PR_GET_DUMPABLE, _PR_GET_TIMERSLACK, _PR_GET_CHILD_SUBREAPER = 3, 30, 37
_LIMITS = (
    # Not that of the data: the supervisor itself moves it.
    resource.RLIMIT_AS,
    resource.RLIMIT_CPU,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_STACK,
)
_FOUNDATIONS: tuple[tuple[ModuleType, str], ...] = (
    (builtins, ""),
    (gc, "disable enable isenabled"),
    (json, "dump dumps load loads"),
    (
        os,
        (
            "_exit chdir close dup2 fork fstat getcwd getpid kill listdir lstat "
            "makedirs mkdir open pipe pread pwrite read remove rename rmdir scandir "
            "stat umask unlink waitpid write"
        ),
    ),
    (signal, "getsignal getitimer pthread_sigmask setitimer signal"),
    (threading, "Thread active_count current_thread enumerate"),
    (time, "monotonic perf_counter sleep time"),
)
"""What everybody's code stands on, ours as well: all of a module, or these names."""
_libc = ctypes.CDLL(None)  # once: each child would pay for it


class Traits:
    """The traits of this process as they are now, to be compared with later ones."""

    def __init__(self) -> None:
        self._foundations = [_Foundation(*one) for one in _FOUNDATIONS]
        self._finders = list(sys.meta_path)
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self._descriptors = _open_descriptors()
        self._adopts = ctypes.c_int()
        self._adopts_ref = ctypes.byref(self._adopts)
        self._watched: tuple[tuple[str, Callable[[], Any]], ...] = (
            ("its user or groups", _credentials),
            ("its limits", _limits),
            ("its root directory", _root),
            ("the cores that it runs on", _cores),
            ("how it is scheduled", _scheduling),
        )
        self._before = [look() for _what, look in self._watched]

    def mend(self) -> str:
        """Put back what our own code needs to go on; name it. First of all."""
        replaced = [name for one in self._foundations for name in one.mend()]
        return f"it replaced {', '.join(replaced[:5])}" if replaced else ""

    def changes(self) -> str:
        """Name what only the kernel or the handler could undo."""
        return "; ".join(self._changes())

    def _changes(self) -> Iterator[str]:
        for (what, look), before in zip(self._watched, self._before, strict=True):
            if look() != before:
                yield f"it changed {what}"
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        if priority != self._priority:
            yield f"it changed its priority from {self._priority} to {priority}"
        more = _open_descriptors() - self._descriptors
        if more > _DESCRIPTORS_MORE_MAX:
            yield f"its process has {more} descriptors more than at first"
        _libc.prctl(_PR_GET_CHILD_SUBREAPER, self._adopts_ref, 0, 0, 0)
        if not self._adopts.value:
            yield "it let its left-over processes escape"
        if any(finder not in sys.meta_path for finder in self._finders):
            yield "it took away what finds modules"


class _Foundation:
    """The functions and classes of a module that a handler is not to replace.

    What is added is no matter: libraries do that when they are first used.
    """

    def __init__(self, module: ModuleType, names: str) -> None:
        # What the interpreter itself binds anew, such as "_", is no function.
        wanted = names.split() or [n for n, v in vars(module).items() if callable(v)]
        self._names = {name: vars(module)[name] for name in wanted}
        self._module = vars(module)
        self._now = itemgetter(*self._names)
        self._values = tuple(self._names.values())

    def mend(self) -> list[str]:
        """Put back what is missing or another; return its names."""
        try:
            if self._now(self._module) == self._values:
                return []
        except KeyError:
            pass  # it is gone; looked at below
        changed = [
            name
            for name, value in self._names.items()
            if self._module.get(name) is not value
        ]
        self._module.update(self._names)
        return [f"{self._module['__name__']}.{name}" for name in changed]


def _credentials() -> tuple[Any, ...]:
    return os.getresuid(), os.getresgid(), os.getgroups()


def _limits() -> list[tuple[int, int]]:
    return list(map(resource.getrlimit, _LIMITS))


def _root() -> tuple[int, int]:
    root = os.stat("/")  # noqa: PTH116 - twice as fast
    return root.st_dev, root.st_ino


def _cores() -> set[int]:
    return os.sched_getaffinity(0)


def _scheduling() -> tuple[int, int, int]:
    return (
        os.sched_getscheduler(0),
        _libc.prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0),
        _libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0),
    )


def _open_descriptors() -> int:
    """Return how many descriptors are open; 0 before Linux 6.2."""
    return os.stat("/proc/self/fd").st_size  # noqa: PTH116 - twice as fast
