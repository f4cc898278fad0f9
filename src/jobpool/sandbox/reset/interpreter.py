"""The interpreter's settings, which a handler may change only for itself.

Two contexts round decimals: the default and the child's own. An attempt runs in a copy
of the child's context variables. It makes its own decimal context from the default,
unless the application already had one: that is the same object in every copy.
"""

from __future__ import annotations

import contextvars
import decimal
import gc
import logging
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from operator import attrgetter
from typing import Any

# How many digits a number in text may have: missing in the first releases of 3.11.
_digits: Callable[[], int] = getattr(sys, "get_int_max_str_digits", int)
_DECIMAL_NAMES = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
_decimal_rules = attrgetter(*_DECIMAL_NAMES)
_usual_decimal_rules = attrgetter("prec", "rounding")
"""A changed context differs in one of these as a rule: only they are compared."""


class Interpreter:
    """The settings as they are now, to be restored later."""

    def __init__(self) -> None:
        self._settings = _settings()
        self._threads_trace = threading.gettrace()
        self._threads_profile = threading.getprofile()
        self._decimals = _DecimalContexts()
        self._path = list(sys.path)
        self._warnings = list(warnings.filters)

    def restore(self) -> None:
        """Put back what differs."""
        # By identity, and first: an object that a handler has set may claim equality.
        if threading.gettrace() is not self._threads_trace:
            threading.settrace(self._threads_trace)
        if threading.getprofile() is not self._threads_profile:
            threading.setprofile(self._threads_profile)
        self._decimals.restore()
        if _settings() != self._settings:
            self._restore_changed()
        if sys.path != self._path:
            sys.path[:] = self._path
        if warnings.filters != self._warnings:
            warnings.filters[:] = self._warnings  # type: ignore[index]  # a list in truth
            warnings._filters_mutated()  # type: ignore[attr-defined]  # noqa: SLF001 - it caches

    def _restore_changed(self) -> None:
        hooks, recursion, digits, switch_s, timeout_s, silenced, collector = (
            self._settings
        )
        sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
        sys.setrecursionlimit(recursion)
        if _digits() != digits:
            sys.set_int_max_str_digits(digits)
        sys.setswitchinterval(switch_s)
        socket.setdefaulttimeout(timeout_s)
        logging.disable(silenced)
        is_enabled, thresholds, debug = collector
        (gc.enable if is_enabled else gc.disable)()
        gc.set_threshold(*thresholds)
        gc.set_debug(debug)


def _settings() -> tuple[Any, ...]:
    """Return all that is compared in one step."""
    return (
        (sys.excepthook, threading.excepthook, sys.unraisablehook),
        sys.getrecursionlimit(),
        _digits(),
        sys.getswitchinterval(),
        socket.getdefaulttimeout(),
        logging.root.manager.disable,
        (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
    )


class _DecimalContexts:
    """The contexts as they are now, to be restored later."""

    def __init__(self) -> None:
        self._default = decimal.DefaultContext.copy()
        self._first = _usual_decimal_rules(self._default)
        self._own = decimal.getcontext().copy() if _has_decimal_context() else None

    def restore(self) -> None:
        """Put back what differs."""
        default, first = decimal.DefaultContext, self._default
        if _usual_decimal_rules(default) != self._first:
            for name, value in zip(_DECIMAL_NAMES, _decimal_rules(first), strict=True):
                setattr(default, name, value)
            default.traps.update(first.traps)
        if self._own is not None:
            decimal.setcontext(self._own.copy())


def _has_decimal_context() -> bool:
    """Say whether decimals were used outside any attempt."""
    return not decimal.HAVE_CONTEXTVAR or any(
        variable.name == "decimal_context" for variable in contextvars.copy_context()
    )
