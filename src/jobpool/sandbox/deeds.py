"""Notes the few calls of Python's own whose effect can be neither undone nor seen.

An audit hook stays for ever, and nobody can list them; whoever leaves a namespace does
not come back. Each such function is replaced by one that notes its name before it does
what it always did, so that this costs nothing until it is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

_NOTED: tuple[tuple[ModuleType, str], ...] = (
    (sys, "addaudithook"),
    (os, "setns"),  # Python 3.12
    (os, "unshare"),
)
_done: list[str] = []


def watch() -> None:
    """Note such calls from now on, and in all copies of this process."""
    for module, name in _NOTED:
        function = getattr(module, name, None)
        if function is not None:
            setattr(module, name, _noting(f"{module.__name__}.{name}", function))


def count() -> int:
    """Return how often something was done."""
    return len(_done)


def done_since(count_before: int) -> str:
    """Name what was done since there were so many; once each."""
    return ", ".join(dict.fromkeys(_done[count_before:]))


def _noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def noting(*args: Any, **options: Any) -> Any:
        _done.append(name)  # first: a soft limit may be raised right after the call
        return function(*args, **options)

    return noting
