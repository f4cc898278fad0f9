"""Calls a handler, plain or ``async def``.

asyncio takes as long to import as a good part of jobpool, and its memory pages are
copied with every child. Only an application that has async functions pays for it:
once, when it registers the first, before there are children. If a function does not
look async (a decorator hides it), its first call imports asyncio. Soft limits are held
back meanwhile: a half-imported module would remain for every later job.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from jobpool.client.invoke.soft_limits import held_back


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
            with held_back():
                from jobpool.client.invoke import event_loop  # noqa: PLC0415 - see above
        except BaseException:
            outcome.close()  # it never started; Python would warn about it
            raise
        return event_loop.run(outcome)
    return outcome


def prepare(function: Callable[..., Any]) -> None:
    """Import what calls of a function need, if it looks async."""
    if _looks_async(function):
        from jobpool.client.invoke import event_loop  # noqa: F401, PLC0415 - see above


def _looks_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, what it wraps, or its ``__call__`` is async."""
    with suppress(Exception):  # any object may raise: its first call imports then
        forms = function, inspect.unwrap(function), type(function).__call__
        return any(map(inspect.iscoroutinefunction, forms))
    return False
