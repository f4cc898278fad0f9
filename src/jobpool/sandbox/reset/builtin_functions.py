"""The functions that all code needs, ours included: restored first of all.

A handler may replace them for its process. Whatever runs there next, if only the
report of the attempt's end, needs the originals.

Where dictionaries have versions (PEP 509), a module is checked only if the version of
its dictionary has changed. Whether they have versions is found out by trying: they can
be read only by their address.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from operator import itemgetter
from types import ModuleType
from typing import Any

_NAMED_MAX = 5
_VERSION_AT = 2 * ctypes.sizeof(ctypes.c_void_p) + ctypes.sizeof(ctypes.c_ssize_t)
"""In CPython's dict: after the object header and the size."""
_VERSIONED_BEFORE = (3, 13)
_NEVER = -1
_Read = Callable[[], object]
# What the interpreter itself rebinds, such as "_", is not a function.
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
"""Each module with the names that are restored."""


class _Last:
    """The functions as they were last taken before the fork."""

    taken: BuiltinFunctions | None = None


def take() -> None:
    """Take them for children to come. Called when the application is loaded."""
    _Last.taken = BuiltinFunctions()
    _Last.taken.restore()


def taken() -> BuiltinFunctions:
    """Return these functions as they are now."""
    return BuiltinFunctions(_Last.taken)


class BuiltinFunctions:
    """These functions as they are now, to be restored later.

    Args:
        before: as they were before the fork. What has not changed since is not read
            anew, which would cost this process the pages that it is in.
    """

    def __init__(self, before: BuiltinFunctions | None = None) -> None:
        self._versions = _versions() if _have_versions() else ()
        self._seen = [_NEVER] * len(self._versions)
        """The dictionary versions at which everything was intact."""
        self._modules: list[_Foundation] = []
        for number, one in enumerate(_FOUNDATIONS):
            if before is not None and before.is_as_seen(number):
                self._modules.append(before._modules[number])  # noqa: SLF001 - ours
                self._seen[number] = before._seen[number]  # noqa: SLF001 - ours
            else:
                self._modules.append(_Foundation(*one))

    def is_as_seen(self, number: int) -> bool:
        """Say whether a module is known to be as it was when it was seen intact."""
        versions = self._versions
        return bool(versions) and versions[number].value == self._seen[number]

    def restore(self) -> str:
        """Restore what was replaced, and name it."""
        now = [version.value for version in self._versions]
        if now and now == self._seen:
            return ""
        replaced = [
            name
            for number, one in enumerate(self._modules)
            if not self.is_as_seen(number)
            for name in one.restore()
        ]
        # A restore makes another version: such a module is checked once more.
        self._seen = now
        return f"it replaced {', '.join(replaced[:_NAMED_MAX])}" if replaced else ""


class _Foundation:
    """The functions and classes of one module that a handler must not replace.

    Additions do not matter: libraries make them when they are first used.
    """

    def __init__(self, module: ModuleType, names: str) -> None:
        self._module = vars(module)
        wanted = names.split()
        self._names = {name: self._module[name] for name in wanted}
        self._read: _Read = (
            partial(list, self._module.values())  # of so many names twice as fast
            if module is builtins
            else partial(itemgetter(*wanted), self._module)
        )
        """Returns the same as before while nothing was replaced."""
        self._intact = self._read()

    def restore(self) -> list[str]:
        """Restore what is missing or replaced; return its names."""
        try:
            if self._read() == self._intact:
                return []
        except KeyError:
            pass  # a name was deleted
        changed = [
            name
            for name, value in self._names.items()
            if self._module.get(name) is not value
        ]
        if changed:
            self._module.update(self._names)
        return [f"{self._module['__name__']}.{name}" for name in changed]


def _versions() -> tuple[ctypes.c_uint64, ...]:
    return tuple(_version_of(vars(module)) for module, _names in _FOUNDATIONS)


def _version_of(namespace: dict[str, Any]) -> ctypes.c_uint64:
    """Return a live view of a dictionary's version; the dictionary must outlive it."""
    return ctypes.c_uint64.from_address(id(namespace) + _VERSION_AT)


@cache
def _have_versions() -> bool:
    """Say whether dictionaries have versions that differ after each change."""
    if sys.version_info >= _VERSIONED_BEFORE or sys.implementation.name != "cpython":
        return False
    module = ModuleType("tried")
    namespace = vars(module)
    namespace |= {"kept": 0, "gone": 0}
    version, seen = _version_of(namespace), set()
    changes: tuple[Callable[[], object], ...] = (
        lambda: None,
        lambda: setattr(module, "kept", 1),
        lambda: namespace.update(kept=2),
        lambda: exec("kept = 3", namespace),  # noqa: S102 - sets a global
        lambda: delattr(module, "gone"),
    )
    for change in changes:
        change()
        if version.value in seen:
            return False
        seen.add(version.value)
    return version.value == version.value  # each access reads it again
