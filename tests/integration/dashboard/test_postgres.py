"""The dashboard on PostgreSQL: each page is read by a connection that only reads."""

from functools import partial

import pytest

from jobpool.dashboard.routes import ROUTES
from jobpool.store.opening import open_store
from support.browsing import Browser
from support.postgres.server import server
from support.store.storing import begin_run, kind_record, lease_one, new_job, succeeded
from support.waiting import wait_until


@pytest.fixture
def browser():
    url = server().store_url()
    store = open_store(url)
    begin_run(store, kinds=[kind_record()], pools={"cpu": "4"})
    store.enqueue([new_job()] * 3)
    store.settle([succeeded(lease_one(store))])
    store.close()
    writer = partial(open_store, url, create=False)
    browser = Browser(writer, reader=partial(writer, reader=True))
    yield browser
    browser.close()
    server().drop(url)


def test_every_page_is_read_and_what_is_done_is_done(browser):
    """Late may be what is read there, wrong it is not."""
    for route in ROUTES:
        if route.is_page and "{" not in route.path:
            answer = browser.get(route.path)
            assert answer.status_code == 200, route.name
            assert "cannot be read" not in answer.text, route.name
    form = {"what": "pool", "name": "cpu", "note": "the disk is slow"}
    assert browser.post("/pause", form).status_code == 303

    def is_shown():
        return "the disk is slow" in browser.get("/").text

    wait_until(is_shown, 30, "the overview says what was paused, and why")
