"""Schedules in the browser: the list, one of them, and what is done about it."""

import re

import pytest

from jobpool.operations.principal import Role
from jobpool.store.records.operating import AuditFilter
from support.store.scheduling import put


@pytest.fixture
def poll(store):
    """A schedule whose name has a slash, as names may."""
    put(store, "feeds/poll")
    return "/schedules/feeds%2Fpoll"


def row_of(store):
    (row,) = store.schedules("feeds/poll")
    return row


def test_schedules_are_listed_with_their_next_time_and_last_ticks(browser, store, poll):
    assert "There are no schedules." not in browser.get("/schedules").text
    store.run_now("feeds/poll")
    page = browser.get("/schedules").text
    assert f'href="{poll}"' in page
    assert '<rect class="open"' in page


def test_an_empty_list_says_how_schedules_come_to_be(browser):
    assert "There are no schedules." in browser.get("/schedules").text


def test_one_is_run_now_and_its_tick_leads_to_its_job(browser, store, poll):
    assert browser.post(f"{poll}/run").headers["Location"] == poll
    (tick,) = store.ticks("feeds/poll")
    assert tick.job_id is not None
    assert store.get(tick.job_id) is not None
    assert "runnable" in browser.get(poll).text


def test_one_is_paused_for_some_time_and_resumed(browser, store, poll):
    """Who paused it, and why, stands on its page."""
    browser.post(f"{poll}/pause", {"for": "2h", "note": "vendor <down>"})
    row = row_of(store)
    assert row.paused_until_ms - row.paused_ms == pytest.approx(7_200_000, abs=1)
    assert "vendor &lt;down&gt;" in browser.get(poll).text
    browser.post(f"{poll}/resume", {"catch_up": "yes"})
    assert row_of(store).paused_ms is None


@pytest.mark.parametrize("span", ["soon", "0", "-1"])
def test_a_pause_of_no_length_is_refused(browser, store, poll, span):
    assert browser.post(f"{poll}/pause", {"for": span}).status_code == 400
    assert row_of(store).paused_ms is None


def test_a_backfill_is_counted_first_and_stored_once_it_is_agreed(browser, store, poll):
    """What was counted is what is stored, however late somebody agrees."""
    assert browser.post(f"{poll}/backfill", {}).status_code == 400
    counted = browser.post(f"{poll}/backfill", {"from": "1h", "note": "an outage"}).text
    ticks = int(re.search(r"Store (\d+) ticks", counted)[1])
    assert 50 <= ticks <= 60
    assert store.ticks("feeds/poll") == []
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', counted))
    assert browser.post(f"{poll}/backfill", hidden).headers["Location"] == poll
    assert len(store.ticks("feeds/poll")) == ticks
    (entry,) = store.audits(AuditFilter(action="schedules backfill"))
    assert entry.note == "an outage"


def test_a_viewer_does_not_have_ticks_counted_either(browser, store, poll):
    """To count is the first half of the form; the trail has the attempt."""
    browser.access.role = Role.VIEWER
    assert browser.post(f"{poll}/backfill", {"from": "1h"}).status_code == 403
    assert [row.action for row in store.audits(AuditFilter())] == ["refused"]


def test_only_an_admin_removes_one(browser, store, poll):
    browser.access.role = Role.OPERATOR
    assert "Remove" not in browser.get(poll).text
    assert browser.post(f"{poll}/remove").status_code == 403
    assert row_of(store)
    browser.access.role = Role.ADMIN
    assert browser.post(f"{poll}/remove").headers["Location"] == "/schedules"
    assert store.schedules() == []


def test_a_schedule_that_is_not_there_is_said_to_be_not_there(browser, poll):
    answer = browser.get("/schedules/feeds/pol")
    assert answer.status_code == 404
    assert "feeds/poll" in answer.text
