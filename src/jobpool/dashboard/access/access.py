"""Ways to find out who asks; each is an `Access`."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from starlette.requests import HTTPConnection

from jobpool.operations.principal import Principal


class Entrance(StrEnum):
    """How somebody who is not known comes in: the page tells them."""

    LINK = "link"
    """By the newest link, on the terminal of who has started the dashboard."""
    TOKEN = "token"
    """By a token, which a form asks for."""
    ELSEWHERE = "elsewhere"
    """Not here: a proxy, or the application around the dashboard, says who asks."""


class Access(Protocol):
    """Knows who asks."""

    @property
    def entrance(self) -> Entrance:
        """How somebody who is not known comes in."""
        ...

    @property
    def cookie(self) -> str:
        """The name of the cookie; "": there are no sessions."""
        ...

    async def principal(self, request: HTTPConnection) -> Principal | None:
        """Return who asks; None: that is not known, and nothing is shown."""
        ...

    def enter(self, key: str, request: HTTPConnection) -> str | None:
        """Return the cookie's value of a new session; None: the key opens none.

        Args:
            key: of a link, or a token.
            request: that brings it.
        """
        ...

    def leave(self, request: HTTPConnection) -> None:
        """End the session that a request is of, if it is of one."""
        ...
