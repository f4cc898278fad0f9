"""Supervisors and the audit trail in the browser."""

import pytest

from jobpool.core.rules.run_report import HostReport, PoolReport, RunReport
from jobpool.dashboard.screens.audit import PAGE
from jobpool.store.records.operating import AuditEntry
from support.store.storing import begin_run, kind_record, lease, new_job, started


@pytest.fixture
def fleet(store):
    """Two supervisors on two hosts, of different code; one of them is busy."""
    kinds = [kind_record()]
    for n, version in ((2, "8f2c1"), (3, "71d0a")):
        begin_run(
            store,
            f"run-{n}",
            kinds=kinds,
            pools={"cpu": "2..8"},
            host=f"web-{n}",
            pid=400 + n,
            application="shop.jobs:jobs",
            app_version=version,
        )
        report = RunReport(
            pools={"cpu": PoolReport(size=4, busy=1, why="CPU is full")},
            host=HostReport(cpu_busy=0.93, available_bytes=2**30),
        )
        store.put_report(f"run-{n}", report)
    store.end_run("run-1")
    store.enqueue([new_job()])
    (granted,) = lease(store, "run-2", kinds={"cpu": ["shop.thumbnail"]})
    store.begin_attempts([started(granted, 0)])
    return store


def test_supervisors_stand_below_their_hosts_with_what_they_run(browser, fleet):
    page = browser.get("/supervisors").text
    assert "2 supervisors" in page
    assert page.index(">web-2 ") < page.index(">pid 402<") < page.index(">web-3 ")
    assert "CPU is full" in page
    assert "cpu 93 % busy" in page


def test_versions_that_run_at_the_same_time_are_named(browser, fleet):
    page = browser.get("/supervisors").text
    assert "shop.jobs:jobs: 71d0a in 1 supervisor, 8f2c1 in 1 supervisor" in page


def test_the_one_that_is_idle_is_cheapest_to_end(browser, fleet):
    page = browser.get("/supervisors").text
    assert "<b>pid 403 on web-3</b>, which is idle." in page


def test_one_that_drains_says_so(browser, fleet):
    fleet.note_leaving("run-3")
    assert ">drains</span>" in browser.get("/supervisors").text


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ({"what": "pool", "name": "cpu"}, "<b>pool cpu</b>"),
        ({"what": "store"}, "<b>All jobs</b>"),
    ],
)
def test_what_is_paused_is_resumed_from_there(browser, fleet, named, shown):
    """A pool, or all of it."""
    assert "Nothing is paused" in browser.get("/supervisors").text
    answer = browser.post("/pause", named | {"note": "moving", "for": "1h"})
    assert answer.headers["Location"] == "/supervisors"
    page = browser.get("/supervisors").text
    assert shown in page
    assert "moving" in page
    (pause,) = fleet.pauses()
    assert pause.until_ms is not None
    browser.post("/resume", named)
    assert fleet.pauses() == []


def test_without_any_it_is_said_what_to_start(browser, store):
    store.end_run("run-1")
    assert "No supervisor is running." in browser.get("/supervisors").text


def written(store, count, **facts):
    usual = {"who": "ada", "role": "admin", "origin": "a test", "action": "cancel"}
    for n in range(count):
        store.audit(AuditEntry(**usual | {"target": "{}", "note": f"no. {n}"} | facts))


def test_the_trail_is_shown_newest_first_in_pages(browser, store):
    written(store, PAGE + 2)
    first = browser.get("/audit").text
    assert first.count("<td>no. ") == PAGE
    assert first.index("no. 101") < first.index("no. 100")
    assert 'href="/audit?before=3"' in first
    rest = browser.get("/audit?before=3").text
    assert rest.count("<td>no. ") == 2
    assert "Older" not in rest


def test_the_trail_is_narrowed_down_by_who_what_and_since(browser, store):
    written(store, 1)
    written(store, 1, who="bob", action="pause", target='{"kind": "shop.pay"}')
    page = browser.get("/audit?who=bo&action=pause&since=1h").text
    assert "<td>bob<br>" in page
    assert "kind shop.pay" in page
    assert "<td>ada<br>" not in page
    assert browser.get("/audit?since=yesterday").status_code == 400


def test_the_trail_of_one_job_is_asked_for_by_its_ref(browser, store):
    """Its id alone shows nothing."""
    (made,) = store.enqueue([new_job()])
    written(store, 1, target=f'{{"ids": "{made.id}"}}', jobs=1)
    written(store, 1, target='{"ids": "900"}', note="another")
    page = browser.get(f"/audit?job={store.ref_of(made.id)}").text
    assert "<td>no. 0</td>" in page
    assert "another" not in page
    assert "Nobody has done that." in browser.get(f"/audit?job={made.id}").text


def test_what_people_write_is_never_markup(browser, store):
    written(store, 1, who="<i>eve</i>", note="<script>\x1b[2J", origin="\u202ehost")
    page = browser.get("/audit").text
    assert "&lt;i&gt;eve&lt;/i&gt;" in page
    assert "&lt;script&gt;\\x1b[2J" in page
    assert "\\u202ehost" in page
