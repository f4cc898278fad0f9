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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    if any(map(inspect.iscoroutinefunction, _forms(function))):
        from jobpool.client import eventloop  # noqa: F401, PLC0415 - see above


def _forms(function: Callable[..., Any]) -> Iterator[Any]:
    """Yield what may be behind a function: itself, what it wraps, what calls it."""
    yield function
    yield inspect.unwrap(function)
    yield getattr(type(function), "__call__", None)  # noqa: B004 - it is to be looked at


@contextmanager
def _softly_undisturbed() -> Iterator[None]:
    """Let no soft limit strike meanwhile; what comes strikes at the end."""
    soft = {getattr(signal, name) for name in SOFT_SIGNALS if hasattr(signal, name)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, soft)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
