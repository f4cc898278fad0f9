"""A timer that a selector can wait for, finer than the selector's own timeout.

epoll counts in milliseconds, and rounds up: a look at memory that is due in 1 ms comes
after 2. A timerfd counts in nanoseconds, and wakes as any descriptor does. (Python has
`os.timerfd_create` from 3.13 on.)

Source: timerfd_create(2).
"""

from __future__ import annotations

import ctypes
import os
import time

_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1
_NEVER = 0
"""As a moment: the timer is off."""


class _Spec(ctypes.Structure):
    """struct itimerspec: an interval, and the next moment, in seconds and ns."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class FineTimer:
    """One moment of the monotonic clock.

    Raises:
        OSError: this system has no such timer, or nothing left for one.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "timerfd_create"):
            raise OSError("this system has no timerfd")
        self._fd: int = self._libc.timerfd_create(
            time.CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC
        )
        if self._fd < 0:
            raise _error("timerfd_create")
        self._set_ns = _NEVER

    def fileno(self) -> int:
        """Return the descriptor: readable once the moment has come."""
        return self._fd

    def set(self, moment_s: float) -> None:
        """Choose the moment, in monotonic seconds.

        Raises:
            OSError: the kernel refused.
        """
        self._set(int(moment_s * 1e9) + 1)

    def rang(self, _mask: int) -> None:
        """Be silent again: the moment has come."""
        self._set(_NEVER)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)

    def _set(self, moment_ns: int) -> None:
        if moment_ns == self._set_ns:
            return
        at_s, at_ns = divmod(moment_ns, 10**9)
        spec = _Spec(0, 0, at_s, at_ns)
        if self._libc.timerfd_settime(
            self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None
        ):
            raise _error("timerfd_settime")
        self._set_ns = moment_ns


def _error(call: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{call}: {os.strerror(code)}")
