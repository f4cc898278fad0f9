"""Runs an ``async def`` handler, so that a soft limit ends it cleanly.

Theory of operation. At a soft limit the child's signal handler raises `SoftTimeout` or
`SoftMemory` in the main thread. Under an event loop this may happen while the loop
itself runs a callback, which would log and drop the exception. For an async handler the
signal handler is therefore wrapped: the exception is caught, the handler's task is
canceled (as asyncio does for Ctrl-C), its ``finally`` blocks run, and the call raises
the exception instead of CancelledError. A coroutine that never awaits is not
interrupted; it ends at the hard limit.

A signal that arrives after Python's last check and before the loop's select() blocks
does not interrupt select(), and neither does one that another thread receives. The C
handler therefore also writes to a socket that the loop watches (set_wakeup_fd).
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

from jobpool.client.invoke.soft_limits import OnSignal, handled_by
from jobpool.errors import SoftMemory, SoftTimeout


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, and return its result.

    Raises:
        SoftTimeout: the soft limit was reached; it was canceled.
        SoftMemory: likewise.
        BaseException: whatever it raised.
    """
    watch = _SoftLimitWatch()
    guarded = watch.guard(coroutine)
    try:
        with watch.installed():
            return asyncio.run(guarded)
    except asyncio.CancelledError:
        if watch.fired is None:
            raise
    finally:
        # For coroutines that were never started, because the soft limit came before
        # the loop or no loop could start: Python would warn about each.
        guarded.close()
        coroutine.close()
    raise watch.fired


class _SoftLimitWatch:
    """Turns a soft limit into a cancellation of one task."""

    def __init__(self) -> None:
        self.fired: SoftTimeout | SoftMemory | None = None
        self._installed = False
        self._task: asyncio.Task[Any] | None = None

    async def guard(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine as the task that a soft limit cancels."""
        self._task = asyncio.current_task()
        if self.fired is not None:  # the last check: from here on it is canceled
            raise self.fired
        try:
            with _woken_by_signals() if self._installed else nullcontext():
                return await coroutine
        finally:
            self._task = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Wrap the child's signal handlers while the event loop runs."""
        with handled_by(self._canceling) as self._installed:
            yield

    def _canceling(self, before: OnSignal) -> OnSignal:
        def handle(signum: int, frame: FrameType | None) -> None:
            try:
                before(signum, frame)
            except (SoftTimeout, SoftMemory) as exc:
                self._cancel(exc)

        return handle

    def _cancel(self, fired: SoftTimeout | SoftMemory) -> None:
        self.fired = fired
        if self._task is not None:
            self._task.cancel()


@contextmanager
def _woken_by_signals() -> Iterator[None]:
    """Make every signal end the running loop's select()."""
    loop = asyncio.get_running_loop()
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    loop.add_reader(reader, reader.recv, 4096)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        loop.remove_reader(reader)
        reader.close()
        writer.close()
