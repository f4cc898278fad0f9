"""Calling a handler, plain or ``async def``.

asyncio takes as long to import as a good part of jobpool, and its pages are copied
with every child. Only an application that has async functions pays for it: once, when
it registers the first, before there are children. A function that does not look like
one (a decorator hides it) pays in its first call, where no soft limit may strike: half
imported modules would be there for every later job.
"""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

SOFT_SIGNALS = ("SIGUSR1", "SIGURG")
"""What a child's supervisor sends at the soft limits, of time and of memory."""


def call(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Call a function and return its result; run it to its end if it is async.

    Raises:
        SoftTimeout: the soft limit was reached; an async function was canceled.
        SoftMemory: likewise.
        BaseException: whatever the function raised.
    """
    outcome = function(*args, **(kwargs or {}))
    if inspect.iscoroutine(outcome):
        try:
            with _softly_undisturbed():
                from jobpool.client import eventloop  # noqa: PLC0415 - see above
        except BaseException:
            outcome.close()  # it was never begun; Python would warn about it
            raise
        return eventloop.run(outcome)
    return outcome


def prepare(function: Callable[..., Any]) -> None:
    """Import what calls of a function take, if it is async, decorated or an object."""
    if _looks_async(function):
        from jobpool.client import eventloop  # noqa: F401, PLC0415 - see above


def _looks_async(function: Callable[..., Any]) -> bool:
    """Say whether a function, what it wraps, or what calls it is async."""
    with suppress(Exception):  # an object may say anything: then it imports later
        forms = function, inspect.unwrap(function), type(function).__call__
        return any(map(inspect.iscoroutinefunction, forms))
    return False


@contextmanager
def _softly_undisturbed() -> Iterator[None]:
    """Let no soft limit strike meanwhile; what comes strikes at the end.

    To block the signals would not do: another thread may receive one, and its handler
    runs in the main thread all the same.
    """
    struck: list[Callable[[], object]] = []
    with ExitStack() as undo:
        if threading.current_thread() is threading.main_thread():
            for name in SOFT_SIGNALS:
                number = getattr(signal, name, 0)
                handler = signal.getsignal(number) if number else None
                if callable(handler):  # else this is no child: nobody sends it
                    signal.signal(number, _noting(handler, struck))
                    undo.callback(signal.signal, number, handler)
        yield
    for strike in struck:
        strike()


def _noting(
    handler: Callable[[int, FrameType | None], object],
    struck: list[Callable[[], object]],
) -> Callable[[int, FrameType | None], None]:
    def note(number: int, frame: FrameType | None) -> None:
        struck.append(partial(handler, number, frame))

    return note
