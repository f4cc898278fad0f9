"""Access by the application that the dashboard is mounted in: it says who asks."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from jobpool.dashboard.access.access import Entrance
from jobpool.operations.principal import Principal

Known = Principal | None
WhoAsks = Callable[[HTTPConnection], Known | Awaitable[Known]]
"""Returns who makes a request; None: somebody who may see nothing."""


@dataclass(frozen=True)
class Host:
    """Knows who asks by what the application around it says."""

    who_asks: WhoAsks
    entrance = Entrance.ELSEWHERE
    cookie = ""

    async def principal(self, request: HTTPConnection) -> Principal | None:
        """See `Access.principal`.

        Raises:
            TypeError: the application has returned something else.
        """
        found = self.who_asks(request)
        if inspect.isawaitable(found):
            found = await found
        if found is not None and not isinstance(found, Principal):
            raise TypeError(
                f"who_asks returned a {type(found).__name__}; expected a "
                "Principal or None"
            )
        return found

    def enter(self, key: str, request: HTTPConnection) -> str | None:
        """See `Access.enter`."""
        del key, request
        return None

    def leave(self, request: HTTPConnection) -> None:
        """See `Access.leave`."""
        del request
