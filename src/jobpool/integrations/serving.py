"""Answers requests by the dashboard, an ASGI application, from threads of others.

Theory of operation. What the dashboard shares between its pages belongs to one event
loop. It has one of its own in a thread of each process, in which all requests are
answered, whatever the application around it runs on: Django, Flask.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, MutableMapping
from concurrent.futures import TimeoutError as Late
from http import HTTPStatus
from typing import Any, ClassVar, NamedTuple

from jobpool.dashboard.routes import ROUTES
from jobpool.errors import OutcomeUnknown
from jobpool.integrations.dashboard import Dashboard, Principal, dashboard

_PRINCIPAL = "jobpool.principal"
_ANSWER_S_MAX = 60.0
"""Far longer than a page takes; an action on many jobs may take some seconds."""
_STREAMS = frozenset(route.path for route in ROUTES if route.is_stream)
"""What has no end, and cannot be passed on in parts."""


class Request(NamedTuple):
    """What an application was asked."""

    method: str
    path: str
    root: str
    """The part of the path that leads to the dashboard."""
    query: str
    scheme: str
    headers: Mapping[str, str]
    body: bytes
    client: str


class Answer(NamedTuple):
    """What is to be answered."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Serving:
    """The dashboard of one store in this process.

    Args:
        url: of the store.
        trace_link: as for `dashboard`.

    Raises:
        ConfigError: as of `dashboard`.
    """

    _found: ClassVar[dict[tuple[int, str, str | None], Serving]] = {}
    _lock = threading.Lock()

    def __init__(self, url: str, trace_link: str | None = None) -> None:
        self._app: Dashboard = dashboard(
            url,
            lambda connection: connection.scope[_PRINCIPAL],
            trace_link=trace_link,
        )
        self._loop = asyncio.new_event_loop()
        threading.Thread(
            target=self._loop.run_forever, name="jobpool dashboard", daemon=True
        ).start()

    @classmethod
    def of(cls, url: str, trace_link: str | None = None) -> Serving:
        """Return that of a store, in this process: threads do not survive a fork."""
        key = os.getpid(), url, trace_link
        with cls._lock:
            if key not in cls._found:
                cls._found[key] = cls(url, trace_link)
            return cls._found[key]

    @classmethod
    def close(cls, url: str) -> None:
        """Close those of a store in this process; the next request opens another."""
        with cls._lock:
            keys = [key for key in cls._found if key[:2] == (os.getpid(), url)]
            for one in [cls._found.pop(key) for key in keys]:
                one.end()

    def end(self) -> None:
        """Close the store and end the thread."""
        self._app.close()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def answer(self, request: Request, principal: Principal | None) -> Answer:
        """Answer a request of somebody; None: of somebody who may see nothing.

        Raises:
            OutcomeUnknown: it takes too long.
        """
        if request.path.removeprefix(request.root) in _STREAMS:
            return Answer(HTTPStatus.NO_CONTENT, [], b"")  # a browser asks no more
        work = asyncio.run_coroutine_threadsafe(
            self._answer(request, principal), self._loop
        )
        try:
            return work.result(_ANSWER_S_MAX)
        except Late:
            work.cancel()
            raise OutcomeUnknown(
                f"the dashboard has not answered within {_ANSWER_S_MAX:g} s; what was "
                "asked for may have been done: see `jobpool audit`"
            ) from None

    async def _answer(self, request: Request, principal: Principal | None) -> Answer:
        received = False
        status, headers, parts = HTTPStatus.INTERNAL_SERVER_ERROR.value, [], []

        async def receive() -> MutableMapping[str, Any]:
            nonlocal received
            if received:
                return {"type": "http.disconnect"}
            received = True
            return {"type": "http.request", "body": request.body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], message["headers"]
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        await self._app(_scope(request, principal), receive, send)
        texts = [
            (name.decode("latin-1"), text.decode("latin-1")) for name, text in headers
        ]
        return Answer(status, texts, b"".join(parts))


def _scope(request: Request, principal: Principal | None) -> dict[str, Any]:
    """Return a request as ASGI has it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": request.root,
        "query_string": request.query.encode("latin-1"),
        "headers": [
            (name.lower().encode("latin-1"), text.encode("latin-1"))
            for name, text in request.headers.items()
        ],
        "client": (request.client, 0),
        "server": None,
        "state": {},
        _PRINCIPAL: principal,
    }
