"""The dashboard as an ASGI application: the table of routes, behind who may ask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from functools import partial
from http import HTTPStatus
from pathlib import PurePosixPath

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount
from starlette.routing import Route as AsgiRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from jobpool import errors
from jobpool.core.config.settings import TraceLinks
from jobpool.dashboard.access.access import Access, Entrance
from jobpool.dashboard.access.headers import SecurityHeaders
from jobpool.dashboard.access.origin import name_asked, why_foreign
from jobpool.dashboard.asked import Asked, NotKnown, Served
from jobpool.dashboard.bulks import Bulks
from jobpool.dashboard.live.live import Live
from jobpool.dashboard.made import Made
from jobpool.dashboard.reading import DEADLINE_S, Reading, begin_page
from jobpool.dashboard.rendering import STATIC, compile_all, environment
from jobpool.dashboard.routes import PLACES, ROUTES, Route
from jobpool.store.protocol import Store

_STATUS: tuple[tuple[type[errors.JobpoolError], HTTPStatus], ...] = (
    (errors.Forbidden, HTTPStatus.FORBIDDEN),
    (errors.JobNotFound, HTTPStatus.NOT_FOUND),
    (errors.FlowNotFound, HTTPStatus.NOT_FOUND),
    (NotKnown, HTTPStatus.NOT_FOUND),
    (errors.UsageError, HTTPStatus.BAD_REQUEST),
    (errors.ConfigError, HTTPStatus.BAD_REQUEST),
    (errors.StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
)
"""The first that fits counts."""
_FOREVER = "public, max-age=31536000, immutable"


class Dashboard:
    """The ASGI application.

    Args:
        access: finds out who asks.
        reader: opens the store for pages; called in threads.
        writer: opens it for what people do.
        store_url: as shown.
        hosts: names by which it may be asked for; None: any.
        traces: where people look at the traces of jobs.
        deadline_s: a page is shown without what is not known by then.
    """

    def __init__(
        self,
        access: Access,
        *,
        reader: Callable[[], Store],
        writer: Callable[[], Store],
        store_url: str,
        hosts: Collection[str] | None = None,
        traces: TraceLinks = TraceLinks(),  # noqa: B008 - it is frozen
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._is_prepared = False
        self._access = access
        self._hosts = hosts
        self._deadline_s = deadline_s
        self._served = Served(
            reading=Reading(reader, deadline_s=deadline_s),
            writing=Reading(writer),
            templates=environment(),
            paths={
                # A parameter that may have slashes in it is written as others are.
                **{route.name: route.path.replace(":path}", "}") for route in ROUTES},
                "enter": "/enter",
                "leave": "/leave",
            },
            places=tuple(p for p in PLACES if any(r.name == p.name for r in ROUTES)),
            has_sessions=bool(access.cookie),
            live=Live(reader),
            made=Made(),
            bulks=Bulks(writer),
            traces=traces,
            store_name=_name_of(store_url),
        )
        asgi = Starlette(
            routes=[
                AsgiRoute("/enter", self._enter, methods=["GET", "POST"]),
                AsgiRoute("/leave", self._leave, methods=["POST"]),
                Mount("/static", _Static(directory=STATIC)),
                *map(self._asgi_route, ROUTES),
            ],
            exception_handlers={
                HTTPException: self._http_error,
                errors.JobpoolError: self._jobpool_error,
            },
        )
        self._app: ASGIApp = SecurityHeaders(asgi)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        self.prepare()
        await self._app(scope, receive, send)

    def prepare(self) -> None:
        """Have a thread do what the first look at each page would wait for."""
        if not self._is_prepared:
            self._is_prepared = True
            compiling = partial(compile_all, self._served.templates)
            threading.Thread(target=compiling, daemon=True).start()

    def end(self) -> None:
        """End answers that would go on for as long as a page is open."""
        self._served.live.end()

    def close(self) -> None:
        """End the threads and close their stores."""
        self._served.bulks.close()
        self._served.reading.close()
        self._served.writing.close()
        self._served.live.close()

    def _asgi_route(self, route: Route) -> AsgiRoute:
        async def answer(request: Request) -> Response:
            return await self._answer(route, request)

        return AsgiRoute(route.path, answer, methods=[route.method], name=route.name)

    async def _answer(self, route: Route, request: Request) -> Response:
        """Answer by a route, once it is known who asks and that they may."""
        if route.is_page:
            begin_page(self._deadline_s)
        asked = Asked(request, None, self._served, route.place or route.name)
        if refused := self._refused(request):
            return self._refusal(asked, HTTPStatus.FORBIDDEN, refused)
        asked.principal = await self._access.principal(request)
        if asked.principal is None:
            return self._closed(asked)
        if route.action is None and asked.principal.role < route.least:
            said = f"{asked.principal.who} ({asked.principal.role.text}) may not see it"
            return self._refusal(asked, HTTPStatus.FORBIDDEN, said)
        request.state.asked = asked
        return await route.answer(asked)

    def _refused(self, request: Request) -> str:
        """Return why a request is not answered, whoever asks; "": it is."""
        name = name_asked(request.headers)
        if self._hosts is not None and name not in self._hosts:
            return (
                f"this dashboard is not called {name or 'so'}; expected "
                f"{' or '.join(sorted(self._hosts))}"
            )
        return why_foreign(request.method, request.headers)

    async def _enter(self, request: Request) -> Response:
        """Exchange a link's key, or a token, for a session."""
        asked = Asked(request, None, self._served, "enter")
        if refused := self._refused(request):
            return self._refusal(asked, HTTPStatus.FORBIDDEN, refused)
        key = None
        if request.method == "POST":
            key = (await asked.form()).get("token")
        elif request.method == "GET" and self._access.entrance is Entrance.LINK:
            # Who only looks (HEAD) uses no link up. A token is no part of an address:
            # histories keep these, and another page could have somebody follow one.
            key = asked.query.get("key")
        value = self._access.enter(key, request) if key else None
        if value is None:
            return self._closed(asked, is_wrong=bool(key))
        answer = RedirectResponse(asked.url("overview"), HTTPStatus.SEE_OTHER)
        answer.set_cookie(
            self._access.cookie,
            value,
            path=asked.url("overview"),
            httponly=True,
            secure=_is_encrypted(request),
            samesite="lax",
        )
        return answer

    async def _leave(self, request: Request) -> Response:
        """End a session."""
        asked = Asked(request, None, self._served, "leave")
        if refused := self._refused(request):
            return self._refusal(asked, HTTPStatus.FORBIDDEN, refused)
        self._access.leave(request)
        return self._closed(asked)

    def _closed(self, asked: Asked, *, is_wrong: bool = False) -> Response:
        """Answer somebody who is not known: how they come in."""
        return asked.page(
            "enter.html",
            status_code=HTTPStatus.UNAUTHORIZED,
            entrance=self._access.entrance,
            is_wrong=is_wrong,
        )

    async def _http_error(self, request: Request, error: Exception) -> Response:
        code = error.status_code if isinstance(error, HTTPException) else 500
        status = HTTPStatus(code)
        asked = Asked(request, None, self._served, "")
        return self._refusal(asked, status, status.description or status.phrase)

    async def _jobpool_error(self, request: Request, error: Exception) -> Response:
        fitting = (status for kind, status in _STATUS if isinstance(error, kind))
        status = next(fitting, HTTPStatus.CONFLICT)
        asked = getattr(request.state, "asked", None)
        if asked is None:
            asked = Asked(request, None, self._served, "")
        return self._refusal(asked, status, str(error))

    def _refusal(self, asked: Asked, status: HTTPStatus, said: str) -> Response:
        return asked.page("error.html", status_code=status, status=status, said=said)


class _Static(StaticFiles):
    """Files whose addresses change with their contents."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        """Return a file that a browser keeps."""
        answer = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        answer.headers["Cache-Control"] = _FOREVER
        return answer


def _is_encrypted(request: Request) -> bool:
    """Say whether a browser has an encrypted way here, be it to a proxy before us."""
    origin = request.headers.get("origin", "")
    return request.url.scheme == "https" or origin.startswith("https://")


def _name_of(store_url: str) -> str:
    """Return what a store is called in the corner: the last part of its URL."""
    return PurePosixPath(store_url.partition("?")[0]).stem or store_url
