"""The dashboard within another ASGI application, which says who asks.

    from jobpool.integrations.dashboard import Principal, Role, dashboard

    def who_asks(request):
        user = request.scope["user"]
        if not user.is_staff:
            return None
        return Principal(who=user.name, role=Role.OPERATOR, origin="shop's admin")

    app.mount("/jobs", dashboard("sqlite:///jobpool.db", who_asks))

It needs the extra ``web``.
"""

from __future__ import annotations

from functools import partial

from jobpool.core.config.readers import trace_link as read_link
from jobpool.core.config.settings import TraceLinks
from jobpool.dashboard.access.host import Host, WhoAsks
from jobpool.dashboard.app import Dashboard
from jobpool.operations.principal import Principal, Role
from jobpool.store.opening import open_store, shown_url

__all__ = ["Dashboard", "Principal", "Role", "dashboard"]


def dashboard(
    store: str, who_asks: WhoAsks, *, trace_link: str | None = None
) -> Dashboard:
    """Return the dashboard as an ASGI application, to be mounted below a path.

    What it shows is for everybody for whom *who_asks* returns a principal; what they
    may do is by their role: a viewer sees, an operator changes what becomes of jobs, an
    admin also deletes. Each change is in the audit trail with their name. Requests that
    other sites' pages make are refused by their headers; the application around it
    needs no token for that.

    The store is opened with the first request, since it may be made by the supervisor
    that the application starts; while it cannot be used, the pages say why.

    Args:
        store: its URL.
        who_asks: called with each request; returns who makes it, or None: then nothing
            is shown. It may be a coroutine function.
        trace_link: where people look at the trace of a job: an http or https URL with
            ``{trace_id}`` in it; None: its id is shown without a link.

    Raises:
        ConfigError: *store* is no URL of a store, or *trace_link* none with a place for
            an id.
    """
    link = None if trace_link is None else read_link(trace_link, "trace_link")
    url = shown_url(store)
    writer = partial(open_store, store, create=False)
    reader = partial(writer, reader=True)
    return Dashboard(
        Host(who_asks),
        reader=reader,
        writer=writer,
        store_url=url,
        traces=TraceLinks(link=link),
    )
