"""Calling a handler, plain or ``async def``.

asyncio takes as long to import as a good part of jobpool, and its pages are copied
with every child. Only an application that has async functions pays for it: once, when
it registers the first, before there are children.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


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
        from jobpool.client import eventloop  # noqa: PLC0415 - see above

        return eventloop.run(outcome)
    return outcome


def prepare(function: Callable[..., Any]) -> None:
    """Import what calls of a function take, if it is async."""
    if inspect.iscoroutinefunction(function):
        from jobpool.client import eventloop  # noqa: F401, PLC0415 - see above
