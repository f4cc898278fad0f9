"""The reactor: one selector for descriptors, signals, and other threads' posts.

Theory of operation. Whatever becomes ready is turned into events by callbacks;
events wait in one queue and are handled in order by whoever runs the reactor.
Signal handlers do nothing: the interpreter's wake-up descriptor carries their
numbers. Other threads leave events in a queue of their own and poke a socket.

Sources: the self-pipe trick, cr.yp.to/docs/selfpipe.html; timerfd_create(2).
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from jobpool.core import events as ev
from jobpool.core.clock import Clock
from jobpool.supervisor.machine.inputs import SupervisorEvent

FINE_S = 0.1
"""Moments nearer than this are kept to more finely than the selector does."""
SOON_S = 0.005
"""Long enough for the lease of a job that was rung for."""
_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1
_NEVER = 0
"""As a moment: the timer is off."""
Ready = Callable[[int], None]
"""Called with the selector's event mask."""


class Reactor:
    """Waits for everything.

    Args:
        clock: the machine's clocks.
        observer: told of events that other threads post for people.
    """

    def __init__(self, clock: Clock, observer: ev.Observer) -> None:
        self.clock = clock
        self._observer = observer
        self._selector = selectors.DefaultSelector()
        self._posted: deque[SupervisorEvent | ev.Event] = deque()
        self._fed: deque[SupervisorEvent] = deque()
        self._later: tuple[float, Callable[[], None]] | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        self._signals_in, self._signals_out = socket.socketpair()
        for end in (
            self._wake_in,
            self._wake_out,
            self._signals_in,
            self._signals_out,
        ):
            end.setblocking(False)
        self.watch(self._wake_in, self._woken)
        self._timer = _fine_timer()
        if self._timer:
            self.watch(self._timer, self._timer.rang)

    def now_s(self) -> float:
        """Return monotonic seconds."""
        return self.clock.monotonic_s()

    # -- descriptors ---------------------------------------------------------------

    def watch(self, fileobj: Any, ready: Ready) -> None:
        """Call *ready* whenever *fileobj* can be read."""
        self._selector.register(fileobj, selectors.EVENT_READ, ready)

    def want_write(self, fileobj: Any, *, on: bool) -> None:
        """Wait until *fileobj* can be written as well, or no longer."""
        ready = self._selector.get_key(fileobj).data
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if on else 0)
        self._selector.modify(fileobj, mask, ready)

    def unwatch(self, fileobj: Any) -> None:
        """Wait for *fileobj* no more; it may be gone from the selector already."""
        if fileobj in self._selector.get_map():
            self._selector.unregister(fileobj)

    def observe(self, event: ev.Event) -> None:
        """Tell people of something that only the loop's side knows."""
        self._observer.observe(event)

    # -- events --------------------------------------------------------------------

    def feed(self, event: SupervisorEvent) -> None:
        """Take an event from the loop's own thread."""
        self._fed.append(event)

    def post(self, event: SupervisorEvent | ev.Event) -> None:
        """Take an event from another thread."""
        self._posted.append(event)
        try:
            self._wake_out.send(b"\0")
        except OSError:
            return  # it is full of wake-ups already, or closed: nobody waits any more

    def __len__(self) -> int:
        """Return how many events wait to be handled."""
        return len(self._fed)

    def take(self) -> SupervisorEvent:
        """Return the next event.

        Raises:
            IndexError: none waits.
        """
        return self._fed.popleft()

    def soon(self, action: Callable[[], None]) -> None:
        """Call *action* in the loop, `SOON_S` from now; only one can be waiting.

        For what wakes other threads, which would be in the way of the store's now.
        """
        if self._later is None:
            self._later = self.now_s() + SOON_S, action

    def wait(self, until_s: float, gather_s: float = 0.0) -> None:
        """Wait for something to become ready, or for a moment to come.

        Args:
            until_s: that moment.
            gather_s: nothing is looked at sooner, so that more of it is ready.
        """
        if self._later is not None:
            until_s = min(until_s, self._later[0])
        if gather_s and (gather_s := min(gather_s, until_s - self.now_s())) > 0.0:
            time.sleep(gather_s)
        timeout_s = None
        if until_s != float("inf"):
            timeout_s = max(0.0, until_s - self.now_s())
            if self._timer and 0.0 < timeout_s < FINE_S:
                self._timer.set(until_s)
        watched = self._selector.get_map()
        for key, mask in self._selector.select(timeout_s):
            # One callback may have ended what another was called for: a child that
            # speaks and dies is ready twice. Its number may even be taken again.
            now = watched.get(key.fd)
            if now is not None and now.data is key.data:
                key.data(mask)
        if self._later is not None and self.now_s() >= self._later[0]:
            (_, action), self._later = self._later, None
            action()

    # -- signals -------------------------------------------------------------------

    def on_signals(self, actions: Mapping[int, Callable[[], None]]) -> None:
        """Call an action, in the loop, for each of these signals."""

        def arrived(_mask: int) -> None:
            for number in self._signals_in.recv(4096):
                if number in actions:
                    actions[number]()

        self.watch(self._signals_in, arrived)
        for number in actions:
            signal.signal(number, _noted)
        signal.set_wakeup_fd(self._signals_out.fileno(), warn_on_full_buffer=False)

    def close(self) -> None:
        """Give the descriptors back."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for end in (
            self._wake_in,
            self._wake_out,
            self._signals_in,
            self._signals_out,
        ):
            end.close()
        if self._timer:
            self._timer.close()

    def _woken(self, _mask: int) -> None:
        self._wake_in.recv(4096)
        while self._posted:
            event = self._posted.popleft()
            if isinstance(event, ev.Event):
                self._observer.observe(event)
            else:
                self._fed.append(event)


class _Spec(ctypes.Structure):
    """struct itimerspec: an interval, and the next moment, in seconds and ns."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class FineTimer:
    """One moment of the monotonic clock, finer than a selector's own timeout.

    epoll counts in milliseconds, and rounds up: a sample of memory that is due in 1 ms
    comes after 2. A timerfd counts in nanoseconds, and wakes as any descriptor does.
    (Python has `os.timerfd_create` from 3.13 on.)

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
            raise _errno_error("timerfd_create")
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
            raise _errno_error("timerfd_settime")
        self._set_ns = moment_ns


def _fine_timer() -> FineTimer | None:
    """Return a timer; None: the selector's own must do."""
    try:
        return FineTimer()
    except OSError:
        return None


def _noted(_number: int, _frame: object) -> None:
    """Do nothing: the wake-up descriptor has the signal's number already."""


def _errno_error(call: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{call}: {os.strerror(code)}")
