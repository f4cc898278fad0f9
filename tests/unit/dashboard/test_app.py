"""The application: who asks, what each answer says, and what a late read looks like."""

import gc
import threading

import pytest

from jobpool.dashboard.access.headers import ALWAYS
from jobpool.dashboard.access.keys import Keys
from jobpool.dashboard.access.origin import why_foreign
from jobpool.dashboard.reading import DEADLINE_S
from jobpool.dashboard.routes import PLACES, ROUTES
from jobpool.operations.principal import Principal, Role
from support.browsing import HOST, Browser, Known
from support.waiting import wait_until

PAGES = [route for route in ROUTES if route.is_page and "{" not in route.path]
ADA = Principal(who="ada", role=Role.OPERATOR, origin="a test")


@pytest.mark.parametrize("route", PAGES, ids=lambda route: route.name)
def test_every_page_without_parameters_is_shown(browser, route):
    answer = browser.get(route.path)
    assert answer.status_code == 200
    assert f'aria-current="page">{_title(route)}' in answer.text


def test_no_page_waits_for_its_template_once_somebody_has_looked(browser, monkeypatch):
    """Nor does a page that nobody has asked for yet: a thread has compiled it."""
    templates = browser.dashboard._served.templates
    templates.cache.clear()
    browser.get("/static/dashboard.css")
    names = templates.list_templates()
    wait_until(lambda: len(templates.cache) == len(names), 30, "all are compiled")
    monkeypatch.setattr(templates, "compile", None)
    assert browser.get("/jobs").status_code == 200


def _title(route):
    place = route.place or route.name
    return next(one.title for one in PLACES if one.name == place)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_nobody_who_is_not_known_sees_anything(opener, route):
    """Not even what the store is called."""
    browser = Browser(opener, Known(None))
    path = route.path.replace("{", "").replace("}", "")
    answer = browser.get(path) if route.method == "GET" else browser.post(path)
    assert answer.status_code == 401
    assert "shop" not in answer.text
    browser.close()


@pytest.mark.parametrize(
    "path", ["/", "/none", "/enter", "/static/dashboard.css", "/static/none.css"]
)
def test_every_answer_has_the_security_headers(browser, path):
    """Errors and files included."""
    headers = browser.get(path).headers
    assert {name: headers.get(name) for name in ALWAYS} == ALWAYS
    assert "unsafe" not in headers["Content-Security-Policy"]


def test_pages_are_not_kept_and_files_are(browser):
    assert browser.get("/").headers["Cache-Control"] == "no-store"
    kept = browser.get("/static/dashboard.css").headers["Cache-Control"]
    assert "immutable" in kept


def test_the_dashboard_answers_to_its_own_names_only(opener):
    """A name that somebody else has pointed here is not one of them."""
    browser = Browser(opener, hosts={"127.0.0.1"})
    assert browser.get("/").status_code == 200
    refused = browser.get("/", headers={"Host": "evil.example:8300"})
    assert refused.status_code == 403
    browser.close()


def test_a_link_opens_one_browser_once(opener):
    """Its key is exchanged for a cookie, and another is told."""
    told = []
    keys = Keys(ADA, told.append, port=8300)
    keys.begin()
    browser = Browser(opener, keys)
    assert browser.get("/").status_code == 401
    assert browser.get("/enter?key=wrong").status_code == 401
    assert browser.get("/").status_code == 401
    opened = browser.get(f"/enter?key={told[0]}")
    assert (opened.status_code, opened.headers["Location"]) == (303, "/")
    cookie = opened.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert told[0] not in cookie
    assert browser.get("/").status_code == 200
    other = Browser(opener, keys)
    assert other.get(f"/enter?key={told[0]}").status_code == 401
    assert len(told) == 2
    assert other.get(f"/enter?key={told[1]}").status_code == 303
    browser.close()
    other.close()


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"origin": f"http://{HOST}"}, True),
        ({"authorization": "Bearer x"}, True),
        ({}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-site", "origin": f"http://{HOST}"}, False),
        ({"sec-fetch-site": "cross-site", "authorization": "Bearer x"}, False),
        ({"origin": "http://127.0.0.1:9999"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://evil.example", "authorization": "Bearer x"}, False),
    ],
)
def test_only_our_own_pages_change_anything(headers, is_ours):
    """Or programs, which name a token and are made to send nothing by a page."""
    assert (why_foreign("POST", headers | {"host": HOST}) == "") is is_ours
    assert why_foreign("GET", {"host": HOST}) == ""


def test_what_is_late_is_said_and_the_rest_is_shown(opener, store, monkeypatch):
    """The page does not wait for it."""
    ended = threading.Event()

    def slow(_self):
        ended.wait(30)
        return []

    monkeypatch.setattr(type(store), "waiting", slow)
    browser = Browser(opener, deadline_s=DEADLINE_S)
    try:
        answer = browser.get("/")
    finally:
        ended.set()
        browser.close()
    assert answer.status_code == 200
    assert "not known within 250 ms" in answer.text


def test_a_read_that_fails_is_heard_of_once(browser, caplog):
    """By who asks: asyncio does not find it again and fill the log."""
    gc.collect()  # what other tests have left is not meant
    caplog.clear()
    assert browser.get("/schedules/none").status_code == 404
    gc.collect()
    complaints = [record for record in caplog.records if record.name == "asyncio"]
    assert [record.getMessage() for record in complaints] == []
