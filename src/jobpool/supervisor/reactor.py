"""The reactor: one selector for descriptors, signals, and other threads' posts.

Theory of operation. Callbacks turn whatever becomes ready into inputs, which wait in
one queue and are handled in order by the loop. Signal handlers do nothing: the
interpreter's wake-up descriptor carries the signal numbers. Other threads leave inputs
in a queue of their own and write to a socket.

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

from jobpool.core.clock import Clock
from jobpool.core.events.event import Event, Observer
from jobpool.supervisor.machine.inputs import SupervisorEvent

FINE_S = 0.1
"""Nearer moments are timed more precisely than the selector can."""
SOON_S = 0.005
"""Long enough for the lease of a job that caused a wake-up."""
_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1
_NEVER = 0
"""As a moment: the timer is off."""
Ready = Callable[[int], None]
"""Called with the selector's event mask."""


class Reactor:
    """Waits for descriptors, signals, posts and moments.

    Args:
        clock: the machine's clocks.
        observer: gets the events that other threads post.
    """

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self.clock = clock
        self._observer = observer
        self._selector = selectors.DefaultSelector()
        self._posted: deque[SupervisorEvent | Event] = deque()
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
        """Also wait until *fileobj* can be written; or no longer."""
        ready = self._selector.get_key(fileobj).data
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if on else 0)
        self._selector.modify(fileobj, mask, ready)

    def unwatch(self, fileobj: Any) -> None:
        """Stop waiting for *fileobj*; it may be gone from the selector already."""
        if fileobj in self._selector.get_map():
            self._selector.unregister(fileobj)

    def observe(self, event: Event) -> None:
        """Report an event from the loop's own thread."""
        self._observer.observe(event)

    # -- events --------------------------------------------------------------------

    def feed(self, event: SupervisorEvent) -> None:
        """Take an event from the loop's own thread."""
        self._fed.append(event)

    def post(self, event: SupervisorEvent | Event) -> None:
        """Take an event from another thread."""
        self._posted.append(event)
        try:
            self._wake_out.send(b"\0")
        except OSError:
            return  # it is full of wake-ups already, or closed

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

        For work that wakes other threads, which would compete with the store's now.
        """
        if self._later is None:
            self._later = self.now_s() + SOON_S, action

    def wait(self, until_s: float, gather_s: float = 0.0) -> None:
        """Wait for something to become ready, or for a moment to come.

        Args:
            until_s: that moment.
            gather_s: pause before the selector is polled, so that more is ready.
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
            # One callback may have closed what another is called for: a child that
            # sends and dies is ready twice. Its descriptor may even be reused.
            now = watched.get(key.fd)
            if now is not None and now.data is key.data:
                key.data(mask)
        if self._later is not None and self.now_s() >= self._later[0]:
            (_, action), self._later = self._later, None
            action()

    # -- signals -------------------------------------------------------------------

    def on_signals(self, actions: Mapping[int, Callable[[], None]]) -> None:
        """Call an action, in the loop, for each of the given signals."""

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
            if isinstance(event, Event):
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
    """A timer on the monotonic clock, finer than a selector's own timeout.

    epoll counts in milliseconds and rounds up: a memory sample that is due in 1 ms is
    taken after 2. A timerfd counts in nanoseconds and wakes like any descriptor.
    (Python has `os.timerfd_create` from 3.13 on.)

    Raises:
        OSError: this system has no timerfd, or no descriptor left for one.
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
        """Set the moment, in monotonic seconds.

        Raises:
            OSError: the kernel refused; the moment is unchanged.
        """
        self._set(int(moment_s * 1e9) + 1)

    def rang(self, _mask: int) -> None:
        """Disarm: the moment has come."""
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
    """Return a timer; None: the selector's own timeout is used."""
    try:
        return FineTimer()
    except OSError:
        return None


def _noted(_number: int, _frame: object) -> None:
    """Do nothing: the wake-up descriptor has the signal's number already."""


def _errno_error(call: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{call}: {os.strerror(code)}")
