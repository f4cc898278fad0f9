"""An address of every page: found in a store for those that are about one thing.

A page with new parameters needs a line here, or the tests of pages fail: none is left
out.
"""

from urllib.parse import quote

from jobpool.core.jobs.job import JobState
from jobpool.dashboard.routes import ROUTES
from jobpool.store.records.flows import FlowFilter
from jobpool.store.records.operating import Filter

PAGES = [route for route in ROUTES if route.is_page]
FORMS = [route for route in ROUTES if route.action is not None]
IDS = [route.name for route in PAGES]


def _job(store):
    """Return the job of whose deaths there is most to say."""
    (job,) = store.find(Filter(states=(JobState.QUARANTINED,)), 1)
    return job


def _flow(store):
    """Return the flow that has come farthest of those that have not ended."""
    return store.flows(FlowFilter(), 1)[0]


EXAMPLES = {
    ("jobs", "ref"): lambda store: _job(store).ref,
    ("flows", "ref"): lambda store: _flow(store).ref,
    ("kinds", "kind"): lambda store: _job(store).kind,
    ("quotas", "quota"): lambda store: store.quotas()[0].name,
    ("tenants", "tenant"): lambda store: "acme",
    ("schedules", "schedule"): lambda store: store.schedules()[0].declared.name,
    ("supervisors", "run"): lambda store: store.open_runs()[0].id,
}
"""By the first part of the path, and the parameter."""


def address_of(store, route):
    """Return an address of a route in a lively store."""
    first, *_ = route.path.strip("/").split("/")
    path = route.path
    while "{" in path:
        name = path.partition("{")[2].partition("}")[0]
        plain = name.partition(":")[0]
        value = quote(str(EXAMPLES[first, plain](store)), safe="")
        path = path.replace(f"{{{name}}}", value)
    return path
