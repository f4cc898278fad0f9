"""Notes calls to Python's own functions by which a handler changes its process.

An audit hook stays for ever and cannot be listed; a process that leaves a namespace
does not come back. Such changes are permanent: they can be neither undone nor seen.
All others can be seen, but checking after every attempt would be a waste: without code
in C the process changes only by these calls, or by another process that one of them
started. (A handler that searches for another way will find one. So a note says when to
check; the lack of one never excuses a check for long, see `baseline`.)

Each such function is replaced by one that notes the call and then makes it, which
costs nothing until it is called. The code that restores the process calls the
originals, which it bound by name before. Calls that our code makes for a handler (to
enqueue, to beat) are noted as that handler's.
"""

from __future__ import annotations

import _locale
import _posixsubprocess
import _signal  # type: ignore[import-not-found]  # typeshed does not know it
import faulthandler
import fcntl
import inspect
import locale
import os
import posix
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial, update_wrapper, wraps
from types import FunctionType, ModuleType
from typing import Any

_FOR_GOOD: tuple[tuple[ModuleType, str], ...] = (
    (sys, "addaudithook"),
    (os, "setns"),  # Python 3.12
    (os, "unshare"),
)
_TO_BE_SEEN: tuple[tuple[tuple[ModuleType, ...], str], ...] = (
    ((resource,), "setrlimit prlimit"),
    ((os, posix), "setuid setgid seteuid setegid setreuid setregid"),
    ((os, posix), "setresuid setresgid setgroups initgroups chroot"),
    ((os, posix), "posix_spawn posix_spawnp system"),
    ((_posixsubprocess,), "fork_exec"),
    ((subprocess,), "_fork_exec"),
    ((os, posix), "nice setpriority sched_setaffinity sched_setparam"),
    ((os, posix), "sched_setscheduler chdir fchdir umask putenv unsetenv"),
    ((os, posix), "close closerange dup2 login_tty set_blocking"),
    ((signal, _signal), "signal setitimer alarm pthread_sigmask set_wakeup_fd"),
    ((faulthandler,), "enable disable register unregister"),
    ((faulthandler,), "dump_traceback_later"),
    ((locale, _locale), "setlocale _setlocale"),
    ((time,), "tzset"),
)
_ABLE: tuple[set[Any], ...] = (
    os.supports_dir_fd,
    os.supports_fd,
    os.supports_follow_symlinks,
)
"""Callers check here what a function can do."""
_F_SETFL, _F_SETSIG = 4, 10
_done: list[str] = []
_last: list[object] = [object()]


def watch() -> None:
    """Note such calls from now on, also in forked copies of this process."""
    for module, name in _FOR_GOOD:
        _note((module,), name, partial(_note_permanent, f"{module.__name__}.{name}"))
    for modules, names in _TO_BE_SEEN:
        for name in names.split():
            _note(modules, name, _do)
    os.register_at_fork(before=_do)
    fcntl.fcntl = _NotingFcntl(fcntl.fcntl, _do)


def count() -> int:
    """Return how many permanent changes were made."""
    return len(_done)


def permanent_since(count_before: int) -> str:
    """Name the permanent changes since that count, once each."""
    return ", ".join(dict.fromkeys(_done[count_before:]))


def last() -> object:
    """Return an object that identifies the last call: a new one for each."""
    return _last[0]


def _do() -> None:
    """Note a call whose effect can be seen. Atomic in any thread."""
    _last[0] = object()


def _note_permanent(name: str) -> None:
    """Note a call whose effect is permanent."""
    _done.append(name)
    _do()


def _note(modules: tuple[ModuleType, ...], name: str, note: Callable[[], None]) -> None:
    """Replace a function in all modules that have it by the same object."""
    replaced: dict[Callable[..., Any], Callable[..., Any]] = {}
    for module in modules:
        function = getattr(module, name, None)
        if function is None:
            continue
        if function not in replaced:
            replaced[function] = _noting(function, note)
        setattr(module, name, replaced[function])
    for function, noting in replaced.items():
        for able in _ABLE:
            if function in able:
                able.add(noting)


class _Noting:
    """Stands in for a function written in C.

    Like that function it is no descriptor: as an attribute of a class it does not
    become a method. It is pickled by name.
    """

    def __init__(self, function: Callable[..., Any], note: Callable[[], None]) -> None:
        update_wrapper(self, function)
        del self.__wrapped__  # type: ignore[attr-defined]  # would bypass the note
        self._function, self._note = function, note

    def __call__(self, *args: Any, **options: Any) -> Any:
        self._note()  # first: a soft limit may be raised right after the call
        return self._function(*args, **options)

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])


class _NotingFcntl(_Noting):
    """Notes changes of how a file is written to, which may be ours.

    Having a descriptor send another signal than SIGIO is permanent: it may stay open.
    """

    def __call__(self, fd: Any, command: Any, *argument: Any) -> Any:
        if command == _F_SETSIG:
            _note_permanent("fcntl.fcntl with F_SETSIG")
        elif command == _F_SETFL:
            self._note()
        return self._function(fd, command, *argument)


def _noting(
    function: Callable[..., Any], note: Callable[[], None]
) -> Callable[..., Any]:
    if not isinstance(function, FunctionType):
        return _Noting(function, note)

    @wraps(function)
    def noting(*args: Any, **options: Any) -> Any:
        note()
        return function(*args, **options)

    noting.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    del noting.__wrapped__
    return noting
