"""Serves the dashboard until it is told to end.

Whoever reaches its port can open connections without saying anything. They get so many
that descriptors are left for the store, and none that stays silent.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from typing import cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from jobpool.core.config.settings import Address
from jobpool.dashboard.app import Dashboard
from jobpool.errors import ConfigError

_CLOSE_S = 2
_SILENT_S = 10.0
_CONNECTIONS_MAX, _CONNECTIONS_MIN = 1000, 16
_RESERVED = 256
"""Descriptors for stores, files and what was accepted before it could be counted."""
_BACKLOG = 64
"""So many connections are accepted at a time."""


def bound(address: Address) -> tuple[socket.socket, Address]:
    """Return a listening socket, and where it listens: port 0 is any free one.

    Raises:
        ConfigError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address.host, address.port))
        found.listen()
    except OSError as exc:
        found.close()
        raise ConfigError(
            f"cannot listen at {address}: {exc.strerror or exc}; end what listens "
            "there, or name another address with --listen"
        ) from exc
    return found, address._replace(port=found.getsockname()[1])


class Connection(H11Protocol):
    """A connection: not one too many, and none that is silent for long."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Take it, or close it at once."""
        super().connection_made(transport)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = min(_CONNECTIONS_MAX, descriptors - _RESERVED)
        if len(self.connections) > max(_CONNECTIONS_MIN, room):
            transport.abort()
            return
        self.loop.call_later(_SILENT_S, self._look, None)

    def _look(self, before: object) -> None:
        """Close it if no request has come whole since the look before."""
        if self.transport.is_closing():
            return
        now = cast("RequestResponseCycle | None", self.cycle)  # None before the first
        if now is before and (now is None or now.response_complete):
            self.transport.abort()
            return
        self.loop.call_later(_SILENT_S, self._look, now)


def serve(
    application: Dashboard, listening: socket.socket, begun: Callable[[], None]
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        application: the dashboard.
        listening: where.
        begun: called once it answers.
    """

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            begun()
            application.prepare()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            application.end()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        application,
        http=Connection,
        backlog=_BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=_CLOSE_S,
    )
    try:
        Server(config).run(sockets=[listening])
    finally:
        application.close()
