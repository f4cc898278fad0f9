"""Notes the few calls of Python's own after which a child must be looked at.

An audit hook stays for ever, and nobody can list them; whoever leaves a namespace does
not come back: what has been done so can be neither undone nor seen. A limit or a user
can be seen, but to look costs more than most attempts, and without code in C nobody
changes them past these calls, or in another process that was started by one of them.

Each such function is replaced by one that notes its name before it does what it always
did, so that this costs nothing until it is called.
"""

from __future__ import annotations

import _posixsubprocess
import fcntl
import os
import posix
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
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
)
_F_SETSIG = 10
_done: list[str] = []
_seen: list[str] = []


def watch() -> None:
    """Note such calls from now on, and in all copies of this process."""
    for module, name in _FOR_GOOD:
        _note(module, name, _done)
    for modules, names in _TO_BE_SEEN:
        for module in modules:
            for name in names.split():
                _note(module, name, _seen)
    os.register_at_fork(before=partial(_seen.append, "os.fork"))
    fcntl.fcntl = _noting_fcntl(fcntl.fcntl)


def count() -> int:
    """Return how often something was done that cannot be seen."""
    return len(_done)


def done_since(count_before: int) -> str:
    """Name what was done since there were so many; once each."""
    return ", ".join(dict.fromkeys(_done[count_before:]))


def seen() -> int:
    """Return how much was done, and not forgotten since, that can be seen."""
    return len(_seen)


def forget(count: int) -> None:
    """So much of it was looked at, the oldest."""
    del _seen[:count]


def _note(module: ModuleType, name: str, noted: list[str]) -> None:
    function = getattr(module, name, None)
    if function is not None:
        setattr(module, name, _noting(f"{module.__name__}.{name}", function, noted))


def _noting_fcntl(function: Callable[..., Any]) -> Callable[..., Any]:
    """Note who has a descriptor send another signal than SIGIO: it may stay open."""

    @wraps(function)
    def noting(fd: Any, command: Any, *argument: Any) -> Any:
        if command == _F_SETSIG:
            _done.append("fcntl.fcntl with F_SETSIG")
        return function(fd, command, *argument)

    del noting.__wrapped__
    return noting


def _noting(
    name: str, function: Callable[..., Any], noted: list[str]
) -> Callable[..., Any]:
    @wraps(function)
    def noting(*args: Any, **options: Any) -> Any:
        noted.append(name)  # first: a soft limit may be raised right after the call
        return function(*args, **options)

    del noting.__wrapped__  # it would be a way past this
    return noting
