"""Access by links with a key, each of which opens one browser, once.

Theory of operation. The link is printed on the terminal of who started the dashboard,
so that who has it is that person. A link in a browser's history or on a command line
opens nothing any more once it was used: its key was exchanged for a cookie, and a new
link was printed. Who finds that their link was used already, by somebody else, sees
that there.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

from starlette.requests import HTTPConnection

from jobpool.core.clock import Clock
from jobpool.dashboard.access.access import Entrance
from jobpool.dashboard.access.sessions import SECRET_BYTES, Sessions
from jobpool.operations.principal import Principal


class Keys:
    """Knows who asks by a cookie that a link's key was exchanged for.

    Args:
        principal: who has started the dashboard, and so has the links.
        tell: called with each new key, the first one included.
        port: where the dashboard listens.
        clock: for the end of idle sessions.
    """

    entrance = Entrance.LINK

    def __init__(
        self,
        principal: Principal,
        tell: Callable[[str], None],
        *,
        port: int,
        clock: Clock | None = None,
    ) -> None:
        self._principal = principal
        self._tell = tell
        self._sessions = Sessions(port, clock)
        self.cookie = self._sessions.cookie
        self._key = ""

    def begin(self) -> None:
        """Make a key, and tell it; the one before opens nothing any more."""
        self._key = secrets.token_urlsafe(SECRET_BYTES)
        self._tell(self._key)

    async def principal(self, request: HTTPConnection) -> Principal | None:
        """See `Access.principal`."""
        return self._sessions.principal(request)

    def enter(self, key: str, request: HTTPConnection) -> str | None:
        """See `Access.enter`."""
        if not self._key or not hmac.compare_digest(key.encode(), self._key.encode()):
            return None
        value = self._sessions.begin(self._principal, request)
        if value is not None:
            self.begin()
        return value

    def leave(self, request: HTTPConnection) -> None:
        """See `Access.leave`."""
        self._sessions.end(request)
