"""Detects permanent changes that only code that is not Python's own can make.

A POSIX timer, a filter of system calls, lost rights, another namespace: no handler
gets there without ctypes, cffi or an extension module. The check costs 10 µs (more as
root), so it is made only if such code was loaded after jobpool's own: then after every
attempt, since what a C function does is unknown.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType
from typing import Any, NamedTuple

from jobpool.sandbox.system.own_fds import open_own

_SUFFIXES = tuple(EXTENSION_SUFFIXES)
_OWN_EXTENSIONS = os.path.join(  # noqa: PTH118 - a str here
    sys.base_exec_prefix,
    sys.platlibdir,
    f"python{sys.version_info.major}.{sys.version_info.minor}",
    "lib-dynload",
)
_STATUS_BYTES = 16 * 1024
_FROM, _UP_TO = b"\nCapInh:", b"\nCpus_allowed:"
"""In /proc/self/status: capabilities, no_new_privs and the number of filters."""
_UNCHANGING = {"pid", "time"}
"""A process itself stays in these: `pid_for_children` shows a change."""
_State = tuple[bytes, bytes, list[str]]
_TIMERS_BYTES = 4096
_namespace_of: Callable[[ModuleType], dict[str, Any]] = vars(ModuleType)[
    "__dict__"
].__get__
"""Reads a module's dictionary without triggering a lazy import."""
_HANDLE_AT = 2
"""Position of the handle of an open library in the arguments of `ctypes.CDLL`."""
_WITHOUT_NOTES = {"_interpreters", "_xxsubinterpreters"}
"""Python's own modules that run code past `intercepted_calls`."""
_opened: list[object] = []
"""One entry for each library that ctypes opened (it may be closed again), and for each
function of the one that ctypes opens itself."""


class _Seen(NamedTuple):
    """What was loaded at the last look."""

    names: AbstractSet[str]
    """Of modules."""
    hint: tuple[int, int]
    """Nothing has been loaded since while this is the same."""
    is_here: bool
    """There is code that is not Python's own, beside jobpool's."""


class _Last:
    """The last look before the fork: to compare names costs a child their pages."""

    seen = _Seen(frozenset(), (0, 0), is_here=False)


def know() -> None:
    """Take all code loaded so far as known. Called before the application is loaded."""
    _Last.seen = _Seen(frozenset(sys.modules), (0, 0), is_here=False)
    open_library = ctypes._dlopen  # type: ignore[attr-defined]  # noqa: SLF001 - no public way

    def noting(*args: Any) -> Any:
        _opened.append(None)
        return open_library(*args)

    begin = ctypes.CDLL.__init__

    def noting_handle(self: Any, *args: Any, **options: Any) -> None:
        if len(args) > _HANDLE_AT or options.get("handle") is not None:
            _opened.append(None)  # an open library: perhaps the C library itself
        begin(self, *args, **options)

    ctypes._dlopen = noting  # type: ignore[attr-defined]  # noqa: SLF001 - as above
    ctypes.CDLL.__init__ = noting_handle  # type: ignore[method-assign]
    ctypes.pythonapi.__class__ = _NotingApi


def look() -> None:
    """Look at what has been loaded since. Called when the application is loaded."""
    _Last.seen = _looked(_Last.seen)


def _looked(before: _Seen) -> _Seen:
    hint = len(sys.modules), len(_opened)
    if hint == before.hint:
        return before
    new = sys.modules.keys() - before.names
    return _Seen(
        before.names | new,
        hint,
        is_here=before.is_here
        or bool(_opened)
        or not _WITHOUT_NOTES.isdisjoint(new)
        or _has_extension(new),
    )


class _NotingApi(ctypes.PyDLL):
    """Python's C interface: all of the C library can be called through it."""

    def __getitem__(self, name: Any) -> Any:
        _opened.append(None)
        return super().__getitem__(name)


class NativeCode:
    """What native code could change, as it is now, to be compared with later."""

    def __init__(self) -> None:
        self._status = open_own("/proc/self/status", os.O_RDONLY)
        self._timers = _open_timers()
        # An ordinary user leaves one only by gaining rights, which are seen.
        self._places = _places() if os.geteuid() == 0 else []
        self._before = self._read()
        self._seen = _Last.seen

    @property
    def is_here(self) -> bool:
        """Whether there is such code in this process."""
        return self._seen.is_here

    def may_have_come(self) -> bool:
        """Say whether there is such code, or may be since the last check."""
        return self.is_here or self._seen.hint != (len(sys.modules), len(_opened))

    def changes(self) -> str:
        """Name what was changed, if there is code that could have."""
        if not self.is_here:
            self._seen = _looked(self._seen)
        if not self.is_here:
            return ""
        timers, rights, namespaces = self._read()
        found = []
        if timers != self._before[0]:
            found.append("it left timers running")
        if rights != self._before[1]:
            found.append("it changed its rights, or filters its system calls")
        if namespaces != self._before[2]:
            found.append("it left a namespace")
        return "; ".join(found)

    def _read(self) -> _State:
        timers = b""
        if self._timers >= 0:
            timers = os.pread(self._timers, _TIMERS_BYTES, 0)
        text = os.pread(self._status, _STATUS_BYTES, 0)
        rights = text[text.find(_FROM) : text.find(_UP_TO)]
        return timers, rights, [os.readlink(place) for place in self._places]  # noqa: PTH115 - a str here


def _open_timers() -> int:
    """Return a descriptor of the list of POSIX timers, -1 where there is none."""
    try:
        return open_own("/proc/self/timers", os.O_RDONLY)
    except OSError:
        return -1


def _places() -> list[str]:
    """Return the paths of this process's namespaces."""
    with contextlib.suppress(FileNotFoundError):  # a kernel without any
        found = set(os.listdir("/proc/self/ns")) - _UNCHANGING  # noqa: PTH208 - names are what we want
        return [f"/proc/self/ns/{name}" for name in sorted(found)]
    return []


def _has_extension(names: Iterable[str]) -> bool:
    """Say whether one of these modules is written in C and not Python's own."""
    for name in names:
        module = sys.modules.get(name)
        if module is None or not issubclass(type(module), ModuleType):
            continue
        file = _namespace_of(module).get("__file__")
        if (
            isinstance(file, str)
            and file.endswith(_SUFFIXES)
            and os.path.dirname(file) != _OWN_EXTENSIONS  # noqa: PTH120 - a str here
        ):
            return True
    return False
