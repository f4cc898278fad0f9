"""The functions that everybody's code stands on, ours as well: put back first of all.

A handler may replace them for its process; what follows in it, if only the report of
the attempt's end, needs them as they were.
"""

from __future__ import annotations

import builtins
import gc
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from types import ModuleType

_NAMED_MAX = 5
# What the interpreter itself binds anew, such as "_", is no function.
_BUILTINS = " ".join(name for name, value in vars(builtins).items() if callable(value))
_FOUNDATIONS: tuple[tuple[ModuleType, str], ...] = (
    (builtins, _BUILTINS),
    (gc, "disable enable isenabled"),
    (json, "dump dumps load loads"),
    (
        os,
        (
            "_exit chdir close dup2 fork fstat getcwd getpid kill listdir lseek lstat "
            "makedirs mkdir open pipe pread pwrite read remove rename rmdir scandir "
            "stat umask unlink waitpid write"
        ),
    ),
    (signal, "getsignal getitimer pthread_sigmask setitimer signal"),
    (threading, "Thread active_count current_thread enumerate"),
    (time, "monotonic perf_counter sleep time"),
)
"""Each module with the names that count."""


class Foundations:
    """They as they are now, to be put back later."""

    def __init__(self) -> None:
        self._modules = [_Foundation(*one) for one in _FOUNDATIONS]
        self._intact = [(one.look, one.look()) for one in self._modules]

    def mend(self) -> str:
        """Put back what was replaced, and name it."""
        try:
            for look, intact in self._intact:
                if look() != intact:
                    break
            else:
                return ""
        except KeyError:
            pass  # a name is gone; it is put back below
        replaced = [name for one in self._modules for name in one.mend()]
        return f"it replaced {', '.join(replaced[:_NAMED_MAX])}" if replaced else ""


class _Foundation:
    """The functions and classes of a module that a handler is not to replace.

    What is added is no matter: libraries do that when they are first used.
    """

    def __init__(self, module: ModuleType, names: str) -> None:
        self._module = vars(module)
        wanted = names.split()
        self._names = {name: self._module[name] for name in wanted}
        self.look: Callable[[], object] = (
            partial(list, self._module.values())  # of so many names twice as fast
            if module is builtins
            else partial(itemgetter(*wanted), self._module)
        )
        """Finds the same as before while nothing was replaced; else look closer."""

    def mend(self) -> list[str]:
        """Put back what is missing or another; return its names."""
        changed = [
            name
            for name, value in self._names.items()
            if self._module.get(name) is not value
        ]
        self._module.update(self._names)
        return [f"{self._module['__name__']}.{name}" for name in changed]
