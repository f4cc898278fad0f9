"""Serves metrics over HTTP, from a thread of this process.

An address that is taken does not keep a supervisor from starting: it may be the old
one's, which drains. It is tried again until it is free.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from jobpool.core.config.settings import Address

AGAIN_S = 1.0
_SILENT_S = 10.0
"""A client that sends nothing is left."""
_REFUSED_S = 0.5
_CLOSE_S = 2.0
_HOME = b"jobpool: see /metrics\n"

StartResponse = Callable[..., Any]
Page = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class _Handler(WSGIRequestHandler):
    """Handles one request, and says nothing on stderr."""

    timeout = _SILENT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its base's
        """Do nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread: a slow client keeps nobody waiting."""

    daemon_threads = True
    allow_reuse_address = True
    timeout = 0.5
    """As often it looks whether it is to end, if nobody connects."""

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take a connection; where that fails, wait: it is offered again at once."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_REFUSED_S)  # no descriptor is left
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that has gone or was silent: stderr is the log's."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Server6(_Server):
    address_family = 10  # AF_INET6


class Listener:
    """Serves the metrics of some collectors while it is entered.

    Args:
        address: where.
        collectors: what is scraped, besides this process itself.
        refused: called once if the address cannot be had, with the reason.
        pages: other paths, each with what answers it.
    """

    def __init__(
        self,
        address: Address,
        collectors: Iterable[Collector],
        *,
        refused: Callable[[str], None],
        pages: Callable[[str], Page | None] = lambda _path: None,
    ) -> None:
        self._address = address
        self._refused = refused
        self._pages = pages
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        for collector in collectors:
            registry.register(collector)
        self._metrics = make_wsgi_app(registry)
        self._closing = threading.Event()
        self.port: int | None = None
        """Where it listens; None: not yet."""
        self.listening = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, name="jobpool-metrics", daemon=True
        )

    def __enter__(self) -> Self:
        """Begin to listen, in the background."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Listen no more."""
        self._closing.set()
        if self.port is not None:
            # Whoever connects has it look at once; if nobody can, it does so soon.
            with contextlib.suppress(OSError):
                place = (self._address.host, self.port)
                socket.create_connection(place, _REFUSED_S).close()
        self._thread.join(_CLOSE_S)

    def _serve(self) -> None:
        told = False
        while not self._closing.is_set():
            try:
                server = self._bound()
            except OSError as exc:
                if not told:
                    self._refused(f"{self._address}: {exc.strerror or exc}")
                    told = True
                self._closing.wait(AGAIN_S)
                continue
            with server:
                self.port = server.server_port
                self.listening.set()
                while not self._closing.is_set():
                    server.handle_request()
            return

    def _bound(self) -> WSGIServer:
        host, port = self._address
        kind = _Server6 if ":" in host else _Server
        return make_server(host, port, self._answer, kind, _Handler)

    def _answer(
        self, environ: dict[str, Any], start_response: StartResponse
    ) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            answer: Iterable[bytes] = self._metrics(environ, start_response)
            return answer
        if (page := self._pages(path)) is not None:
            return page(environ, start_response)
        found = path in ("", "/")
        status = "200 OK" if found else "404 Not Found"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [_HOME]
