"""Sessions: what a browser's cookie stands for."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property

from starlette.requests import HTTPConnection

from jobpool.core.clock import Clock, SystemClock
from jobpool.dashboard.access.peer import is_here, names_owners, uid_of
from jobpool.operations.principal import Principal

IDLE_S = 12 * 3600.0
"""A session ends after so long without a request."""
SESSIONS_MAX = 20
"""Of one person; beyond, theirs that was used longest ago ends. How many people there
are is for who has handed out links and tokens to say."""
SECRET_BYTES = 32


@dataclass
class _Session:
    principal: Principal
    uid: int | None
    """The user of this host that it belongs to; None: it came from elsewhere, or this
    kernel does not tell."""
    used_s: float


class Sessions:
    """The sessions of one dashboard; they end with its process.

    Args:
        port: where it listens: cookies are shared by all ports of a host.
        clock: for the end of idle sessions.
    """

    def __init__(self, port: int, clock: Clock | None = None) -> None:
        self.cookie = f"jobpool-{port}"
        self._clock = clock or SystemClock()
        self._sessions: dict[str, _Session] = {}

    def begin(self, principal: Principal, request: HTTPConnection) -> str | None:
        """Begin a session; return the value of its cookie.

        None: it comes from this host, and the kernel, which tells whose connections
        are, does not say so of this one: it would belong to everybody here.
        """
        uid = uid_of(request)
        if uid is None and _is_from_here(request) and self._are_owned:
            return None
        own = [
            value
            for value, one in self._sessions.items()
            if one.principal.who == principal.who
        ]
        own.sort(key=lambda value: self._sessions[value].used_s)
        for value in own[: max(0, len(own) - SESSIONS_MAX + 1)]:
            del self._sessions[value]
        value = secrets.token_urlsafe(SECRET_BYTES)
        self._sessions[value] = _Session(principal, uid, self._clock.monotonic_s())
        return value

    def principal(self, request: HTTPConnection) -> Principal | None:
        """Return whose session a request is of; None: of none."""
        value = request.cookies.get(self.cookie, "")
        session = self._sessions.get(value)
        if session is None:
            return None
        now_s = self._clock.monotonic_s()
        if now_s - session.used_s > IDLE_S:
            del self._sessions[value]
            return None
        if session.uid is not None and session.uid != uid_of(request):
            return None
        session.used_s = now_s
        return session.principal

    def end(self, request: HTTPConnection) -> None:
        """End the session that a request is of."""
        if self.principal(request) is not None:
            del self._sessions[request.cookies[self.cookie]]

    @cached_property
    def _are_owned(self) -> bool:
        return names_owners()


def _is_from_here(request: HTTPConnection) -> bool:
    return request.client is not None and is_here(request.client.host)
