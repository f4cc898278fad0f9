"""The dashboard within a Flask application, behind its login.

    from jobpool.integrations.flask import Principal, Role, dashboard

    def who_asks():
        if not current_user.is_authenticated:
            return redirect(url_for("login"))
        return Principal(who=current_user.name, role=Role.OPERATOR, origin="the shop")

    app.register_blueprint(dashboard("sqlite:///shop.db", who_asks), url_prefix="/jobs")

It needs the extra ``web``, and Flask.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import urlencode

from flask import Blueprint, Response, request
from flask.typing import ResponseReturnValue

from jobpool.core.config.readers import trace_link as read_link
from jobpool.dashboard.asked import FORM_MAX_BYTES
from jobpool.errors import StoreError
from jobpool.integrations.serving import Request, Serving
from jobpool.operations.principal import Principal, Role
from jobpool.store.opening import shown_url

__all__ = ["Principal", "Role", "dashboard"]

WhoAsks = Callable[[], Principal | ResponseReturnValue | None]
_METHODS = ("GET", "HEAD", "POST")


def dashboard(
    store: str,
    who_asks: WhoAsks,
    *,
    trace_link: str | None = None,
    name: str = "jobpool",
) -> Blueprint:
    """Return the dashboard as a blueprint.

    It works on any WSGI server. An open page holds none of its workers: pages are as
    new as their last load. What is done there is in the audit trail, with the name of
    who did it. Forms of other sites are refused by what browsers say of a request's
    origin; if your application wants a token in all forms, exempt the blueprint.

    Args:
        store: its URL. It is opened with the first request, since it may be made by the
            supervisor that the application starts; while it cannot be used, the pages
            say why.
        who_asks: called with each request, in its context; returns who makes it, or
            None: then nothing is shown. Or what Flask is to answer instead, such as
            ``redirect(url_for("login"))``.
        trace_link: where people look at the trace of a job: an http or https URL with
            ``{trace_id}`` in it; None: its id is shown without a link.
        name: of the blueprint.

    Raises:
        ConfigError: *store* is no URL of a store, or *trace_link* none with a place for
            an id.
    """
    shown_url(store)  # else the first request would say what is wrong
    if trace_link is not None:
        read_link(trace_link, "trace_link")
    blueprint = Blueprint(name, __name__)

    def show(path: str = "") -> ResponseReturnValue:
        found = who_asks()
        if found is not None and not isinstance(found, Principal):
            return found
        asked = request.script_root + request.path
        try:
            body = b"" if found is None else _body()
            answer = Serving.of(store, trace_link).answer(
                _request_of(asked, path, body), found
            )
        except StoreError as exc:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            return Response(str(exc), status, content_type="text/plain; charset=utf-8")
        return Response(answer.body, answer.status, answer.headers)

    blueprint.add_url_rule("/", "overview", show, methods=_METHODS)
    blueprint.add_url_rule("/<path:path>", "page", show, methods=_METHODS)
    return blueprint


def _body() -> bytes:
    """Return the form that was sent, and of a longer one no more than shows that.

    Flask limits no body by itself. What the application has read already, as before
    each request, is there no more, but what it found in it.
    """
    body = bytearray()
    while left := FORM_MAX_BYTES + 1 - len(body):
        if not (part := request.stream.read(left)):
            break
        body += part
    read = bytes(body) or request.get_data()
    return read or urlencode([*request.form.items(multi=True)]).encode()


def _request_of(asked: str, path: str, body: bytes) -> Request:
    return Request(
        method=request.method,
        path=asked,
        root=asked.removesuffix(path).rstrip("/"),
        query=request.query_string.decode("latin-1"),
        scheme=request.scheme,
        headers=dict(request.headers),
        body=body,
        client=request.remote_addr or "",
    )
