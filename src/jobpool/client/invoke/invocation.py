"""Calling a handler, plain or ``async def``.

asyncio takes as long to import as a good part of jobpool, and its pages are copied
with every child. Only an application that has async functions pays for it: once, when
it registers the first, before there are children. A function that does not look like
one (a decorator hides it) pays in its first call, where no soft limit may strike: half
imported modules would be there for every later job.
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
            outcome.close()  # it was never begun; Python would warn about it
            raise
        return event_loop.run(outcome)
    return outcome


def prepare(function: Callable[..., Any]) -> None:
    """Import what calls of a function take, if it is async, decorated or an object."""
    if _looks_async(function):
        from jobpool.client.invoke import event_loop  # noqa: F401, PLC0415 - see above


def _looks_async(function: Callable[..., Any]) -> bool:
    """Say whether a function, what it wraps, or what calls it is async."""
    with suppress(Exception):  # an object may say anything: then it imports later
        forms = function, inspect.unwrap(function), type(function).__call__
        return any(map(inspect.iscoroutinefunction, forms))
    return False
