"""What jobs and their callers write is shown, and does nothing in a real browser."""

from urllib.parse import quote, urlencode

import pytest

from jobpool.core.clock import SystemClock
from jobpool.store.opening import open_store
from jobpool.store.records.flows import FlowFilter
from jobpool.store.records.operating import Filter
from support.browser.places import PAGES
from support.browser.site import served
from support.browser.visit import visiting
from support.lively.hostile import TEXTS, plant
from support.store.new_file import place_new_file
from support.store.storing import ManualClock

pytestmark = pytest.mark.timeout(300)
MADE = """() => window.hostile
  || [...document.querySelectorAll(
    "[data-hostile], main script, iframe, base, img, object, embed, [style], "
    + "meta[http-equiv], [onerror], [onload], [onfocus]")].map(one => one.outerHTML)[0]
  || [...document.querySelectorAll("a[href], form[action], link[href]")]
    .filter(one => new URL(one.href || one.action, location).origin
      != location.origin).map(one => one.outerHTML)[0]
  || document.documentElement.innerText.match(
    /[\\u0000-\\u0008\\u001b\\u0080-\\u009f\\u200b-\\u200f\\u202a-\\u202e\\u2066-\\u2069]/)
  || null"""
"""What a text has made of a page, if it has made anything."""
PATHS = {route.name: route.path for route in PAGES}


def page_of(name, **parts):
    """Return the address of a page."""
    path = PATHS[name].replace(":path}", "}")
    return path.format(**{key: quote(part, safe="") for key, part in parts.items()})


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "shop.db"
    place_new_file(path)
    clock = ManualClock(SystemClock().utc_ms() - 5000)
    store = open_store(f"sqlite:///{path}", clock=clock)
    plant(store, clock)
    store.close()
    with served(path) as site:
        yield site


@pytest.fixture
def look(browser, hostile):
    """Look at a page: nothing on it runs, leads elsewhere, or deceives."""
    with visiting(browser, hostile) as visit:
        page = visit("/")

        def look_at(path):
            answer = page.goto(hostile.url + path, wait_until="load")
            assert answer.status < 500, path
            assert page.evaluate(MADE) is None, path
            return page

        yield look_at


def test_pages_of_all_things_show_them_harmless(look):
    plain = [route.path for route in PAGES if "{" not in route.path]
    for path in plain:
        look(path)


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_pages_about_one_thing_show_it_harmless(look, hostile, number):
    """A job that has died, one that runs, its kind, tenant and flow; and a search."""
    text = TEXTS[number]
    with hostile.opened() as store:
        found = store.find(Filter(tenant=f"{text[:190]} {number}"))
        flow = store.flows(FlowFilter(name=text[:100]), 1)[0]
    dead = next(job for job in found if job.error)
    runs = next(job for job in found if job.state == "leased")
    for path in (
        page_of("job", ref=dead.ref),
        page_of("job", ref=runs.ref),
        page_of("flow", ref=flow.ref),
        page_of("kind", kind=dead.kind),
        page_of("tenant", tenant=dead.tenant),
        page_of("jobs") + "?" + urlencode({"kind": dead.kind, "text": text[:50]}),
    ):
        look(path)
