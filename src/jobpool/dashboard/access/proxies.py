"""Access by a proxy that has found out who asks, and says so in a header."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from jobpool.dashboard.access.access import Entrance
from jobpool.dashboard.access.peer import ip, is_here, uid_of
from jobpool.dashboard.access.tokens import origin_of
from jobpool.errors import ConfigError
from jobpool.operations.principal import NAME_MAX, Principal, Role

USER_HEADER = "X-Forwarded-User"
_ROLES = {role.text: role for role in Role}
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Proxies:
    """Knows who asks by what a named proxy says.

    A proxy on this host is known by its user as well: its address is everybody's here.
    """

    networks: Sequence[Network]
    """From where proxies ask."""
    uid: int | None
    """The user that a proxy on this host runs as; None: none is here."""
    user_header: str
    role_header: str | None
    """None: everybody has the same role."""
    role: Role
    """Of everybody whose role the proxy does not say."""
    entrance = Entrance.ELSEWHERE
    cookie = ""

    async def principal(self, request: HTTPConnection) -> Principal | None:
        """See `Access.principal`."""
        if not self._is_proxy(request):
            return None
        who = _one(request, self.user_header)
        role = self._role(request)
        if not who or role is None:
            return None
        return Principal(who=who[:NAME_MAX], role=role, origin=origin_of(request))

    def enter(self, key: str, request: HTTPConnection) -> str | None:
        """See `Access.enter`."""
        del key, request
        return None

    def leave(self, request: HTTPConnection) -> None:
        """See `Access.leave`."""
        del request

    def _is_proxy(self, request: HTTPConnection) -> bool:
        host = "" if request.client is None else request.client.host
        client = ip(host)
        if client is None or not any(client in one for one in self.networks):
            return False
        if not is_here(host):
            return True
        return self.uid is not None and self.uid == uid_of(request)

    def _role(self, request: HTTPConnection) -> Role | None:
        """Return the role; None: the proxy has said something that is none."""
        if self.role_header is None or self.role_header not in request.headers:
            return self.role
        return _ROLES.get((_one(request, self.role_header) or "").lower())


def _one(request: HTTPConnection, header: str) -> str | None:
    """Return a header's value; None: there is none, or the client has added another."""
    values = request.headers.getlist(header)
    return values[0].strip() if len(values) == 1 else None


def network(text: str) -> Network:
    """Read an address or a network of proxies.

    Raises:
        ConfigError: it is none.
    """
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError as exc:
        raise ConfigError(
            f"--proxy: {text[:60]!r} is not an address; expected one such as 10.0.0.5, "
            "or a network such as 10.0.0.0/28; nothing was started"
        ) from exc
