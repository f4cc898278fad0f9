"""Calling a handler, plain or ``async def``, so that a soft timeout ends it cleanly.

Theory of operation. At the soft limit the child's signal handler raises
`SoftTimeout` in the main thread. In a plain handler that is all: it unwinds. Under
an event loop it may strike while the loop itself runs a callback, which would log
and drop it. For an async handler the signal handler is therefore wrapped: what it
raises is caught, the handler's task is canceled (as asyncio does for Ctrl-C), its
``finally`` blocks run, and `SoftTimeout` comes out of the call instead of
CancelledError. A coroutine that never awaits is not interrupted; the hard limit is.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from jobpool.errors import SoftTimeout

SOFT_TIMEOUT_SIGNAL = "SIGUSR1"
"""What a child's supervisor sends at the soft limit."""


def call(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Call a function and return its result; run it to its end if it is async.

    Raises:
        SoftTimeout: the soft limit was reached; an async function was canceled.
        BaseException: whatever the function raised.
    """
    outcome = function(*args, **(kwargs or {}))
    if inspect.iscoroutine(outcome):
        return _run(outcome)
    return outcome


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    watch = _SoftTimeoutWatch()
    guarded = watch.guard(coroutine)
    try:
        with watch.installed():
            return asyncio.run(guarded)
    except asyncio.CancelledError:
        if watch.fired is None:
            raise
    finally:
        # They matter if they were never started: the soft timeout came before the
        # loop did, or there could be no loop; Python would warn about each.
        guarded.close()
        coroutine.close()
    raise watch.fired


class _SoftTimeoutWatch:
    """Turns a soft timeout into a cancellation of one task."""

    def __init__(self) -> None:
        self.fired: SoftTimeout | None = None
        self._task: asyncio.Task[Any] | None = None

    async def guard(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine as the task that a soft timeout cancels."""
        if self.fired is not None:
            raise self.fired
        self._task = asyncio.current_task()
        try:
            return await coroutine
        finally:
            self._task = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Stand between the child's signal handler and the event loop."""
        number: int = getattr(signal, SOFT_TIMEOUT_SIGNAL, 0)
        before = signal.getsignal(number) if number else None
        if threading.current_thread() is not threading.main_thread() or not callable(
            before
        ):
            yield  # not in a child: nobody sends it
            return

        def handle(signum: int, frame: FrameType | None) -> None:
            try:
                before(signum, frame)
            except SoftTimeout as exc:
                self._cancel(exc)

        signal.signal(number, handle)
        try:
            yield
        finally:
            signal.signal(number, before)

    def _cancel(self, fired: SoftTimeout) -> None:
        self.fired = fired
        if self._task is not None:
            self._task.cancel()
            # Wakes the loop, which may sleep in select().
            self._task.get_loop().call_soon_threadsafe(lambda: None)
