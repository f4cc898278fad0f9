"""Many jobs at once: what would be done, what is done, and how it is stopped."""

import html
import json
import re
from urllib.parse import urlencode

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.dashboard.bulks import AT_ONCE, AT_ONCE_MAX
from jobpool.dashboard.screens.jobs import bulk as bulk_screen
from jobpool.operations.principal import Role
from jobpool.store.records.operating import AuditFilter, Filter
from support.store.storing import lease_one, succeeded
from support.waiting import wait_until
from unit.dashboard.screens.jobs.test_pages import die

PATIENCE_S = 30.0
DEAD = {"choice": "state=dead&kind=shop.thumbnail"}


def counted(store, state):
    return store.count(Filter(states=(JobState(state),)))


def under_way(browser, answer):
    """Return the action that an answer leads to."""
    assert answer.status_code == 303, answer.text
    name = answer.headers["location"].partition("name=")[2]
    return browser.dashboard._served.bulks.get(name)


def ended(browser, answer):
    """Wait until the action of an answer is over; return its page."""
    bulk = under_way(browser, answer)
    wait_until(lambda: bulk.is_over, PATIENCE_S, "the action is over")
    return browser.get(answer.headers["location"]).text


def wait_for_canary(browser, store, answer):
    """Wait until one is due, and its action knows that."""
    bulk = under_way(browser, answer)
    wait_until(lambda: bulk.done.canaries, PATIENCE_S, "a canary is due")
    assert counted(store, "runnable") == 1


def test_what_would_be_done_is_counted_and_changes_nothing(browser, store):
    for reason in ("x", "x", "x", "y"):
        die(store, reason)
    text = browser.get("/bulk?act=retry&state=dead&text=x").text
    assert "3 jobs would be retried" in text
    assert counted(store, "dead") == 4
    assert store.audits(AuditFilter()) == []


def test_a_count_that_had_no_time_says_so(browser, store, monkeypatch):
    monkeypatch.setattr(bulk_screen, "_BUDGET_S", -1.0)
    monkeypatch.setattr(bulk_screen, "_WINDOW", 1)
    for reason in ("x", "y"):
        die(store, reason)
    text = browser.get("/bulk?act=retry&state=dead").text
    assert "At least 1 job would be retried" in text
    assert "There was no time to count further." in text


def test_all_that_match_are_retried_with_one_row_in_the_trail(browser, store):
    """The filter is the one of the list: other jobs stay as they are."""
    for _ in range(3):
        die(store, "x")
    spared = die(store, "y")
    fields = {"choice": "state=dead&text=x", "note": "vendor is back"}
    text = ended(browser, browser.post("/bulk/retry", fields))
    assert "Retry: 3 of 3 jobs retried" in text
    assert store.get(spared).state is JobState.DEAD
    assert counted(store, "runnable") == 3
    (row,) = store.audits(AuditFilter())
    assert (row.action, row.jobs, row.who) == ("retry", 3, "ada")
    assert row.note == "vendor is back"
    assert '"text":"x"' in row.target


def test_canaries_go_first_and_the_rest_waits_for_them(browser, store):
    for _ in range(3):
        die(store, "x")
    answer = browser.post("/bulk/retry", {**DEAD, "canary": "1"})
    wait_for_canary(browser, store, answer)
    text = browser.get(answer.headers["location"]).text
    assert "0 of 1 have ended" in text
    assert counted(store, "dead") == 2
    store.settle([succeeded(lease_one(store))])
    assert "3 of 3 jobs retried" in ended(browser, answer)


def test_what_is_under_way_can_be_stopped(browser, store):
    """The rest stays as it was, its page says so, and the trail who stopped what."""
    for _ in range(3):
        die(store, "x")
    answer = browser.post("/bulk/retry", {**DEAD, "canary": "1"})
    wait_for_canary(browser, store, answer)
    browser.post("/bulk/stop", {"name": under_way(browser, answer).name})
    assert "It was stopped; the rest is as it was." in ended(browser, answer)
    assert counted(store, "dead") == 2
    row = next(one for one in store.audits(AuditFilter()) if one.action == "stop")
    target = json.loads(row.target)
    assert (target["stopped"], target["begun_by"]) == ("retry", "ada")
    assert (target["kind"], row.who) == ("shop.thumbnail", "ada")


def test_who_may_not_stop_what_is_under_way_is_refused_on_record(browser, store):
    """It goes on."""
    die(store, "x")
    answer = browser.post("/bulk/retry", {**DEAD, "canary": "1"})
    bulk = under_way(browser, answer)
    wait_for_canary(browser, store, answer)
    browser.access.role = Role.VIEWER
    assert browser.post("/bulk/stop", {"name": bulk.name}).status_code == 403
    assert not bulk.done.is_unwanted
    assert store.audits(AuditFilter(action="refused"))


def form_of(page):
    """Return the hidden fields of a page's form."""
    text = html.unescape(page.text)
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', text))


def test_far_more_jobs_than_were_counted_are_left_as_they_are(browser, store):
    """Until somebody has seen how many they are by now."""
    die(store, "x")
    form = form_of(browser.get("/bulk?act=retry&state=dead"))
    for _ in range(12):
        die(store, "x")
    answer = browser.post("/bulk/retry", form)
    assert answer.status_code == 400
    assert "13 jobs match by now, and 1 did" in answer.text
    assert counted(store, "dead") == 13
    text = ended(browser, browser.post("/bulk/retry", form_of(answer)))
    assert "13 of 13 jobs retried" in text


def test_some_more_jobs_than_were_counted_are_meant_as_well(browser, store):
    die(store, "x")
    form = form_of(browser.get("/bulk?act=retry&state=dead"))
    die(store, "x")
    assert "2 of 2 jobs retried" in ended(browser, browser.post("/bulk/retry", form))


def test_a_form_that_is_sent_twice_begins_one_action(browser, store):
    """As by two clicks: two would take twice as many canaries, at twice the rate."""
    for _ in range(3):
        die(store, "x")
    page = browser.get("/bulk?act=retry&state=dead")
    form = {**form_of(page), "canary": "1"}
    first, second = (browser.post("/bulk/retry", form) for _ in range(2))
    assert first.headers["location"] == second.headers["location"]
    wait_for_canary(browser, store, first)
    browser.post("/bulk/stop", {"name": under_way(browser, first).name})
    ended(browser, first)
    assert counted(store, "dead") == 2


WRONG = {
    "a word as rate": ({**DEAD, "rate": "fast"}, "the rate: expected a whole number"),
    "an odd unit": ({**DEAD, "rate": "1", "per": "year"}, "the rate: expected"),
    "an odd digit": ({**DEAD, "rate": "²"}, "the rate: expected"),
    "a long number": ({**DEAD, "canary": "0" * 9 + "9" * 5000}, "canary: expected"),
    "a long rate": ({**DEAD, "rate": "9" * 5000}, "the rate: expected"),
    "no canary": ({**DEAD, "canary": "0"}, "canary: expected a whole number"),
    "too few canaries": (
        {**DEAD, "canary": "1", "stop_after": "2"},
        "at most as many failures",
    ),
    "what has succeeded": (
        {"choice": "state=succeeded"},
        "only pending, retryable, dead",
    ),
    "any state": ({"choice": "kind=a"}, "no state is chosen"),
    "no such state": ({"choice": "state=none"}, "there is no state 'none'"),
    "nothing": ({}, "no state is chosen"),
}


@pytest.mark.parametrize(("fields", "said"), WRONG.values(), ids=WRONG)
def test_a_form_that_makes_no_sense_changes_nothing(browser, store, fields, said):
    die(store, "x")
    answer = browser.post("/bulk/retry", fields)
    assert answer.status_code == 400
    assert said in html.unescape(answer.text)
    assert counted(store, "dead") == 1
    assert store.audits(AuditFilter()) == []


def test_a_viewer_begins_and_stops_nothing(browser, store):
    """Also if the form is sent without its page; the trail has that."""
    die(store, "x")
    browser.access.role = Role.VIEWER
    assert browser.post("/bulk/retry", DEAD).status_code == 403
    assert browser.post("/bulk/stop", {"name": "x"}).status_code == 403
    assert "/bulk/retry" not in browser.get("/bulk?act=retry&state=dead").text
    assert counted(store, "dead") == 1
    assert [row.action for row in store.audits(AuditFilter())] == ["refused"]


def test_only_so_many_are_under_way_at_once(browser, store):
    """More would wait for each other; those that are, are shown."""
    for n in range(5):
        die(store, f"reason {n}")
    answers = [
        browser.post("/bulk/retry", {"choice": f"state=dead&text=n {n}", "canary": "1"})
        for n in range(5)
    ]
    assert [one.status_code for one in answers] == [303, 303, 303, 303, 400]
    assert "4 such actions are under way in this dashboard, 4 of" in answers[-1].text
    assert browser.get("/bulk/running").text.count("Look again") == 4
    assert counted(store, "dead") >= 1


def test_slow_actions_of_one_operator_do_not_hold_up_others(browser, store):
    """Whoever has none under way may begin one, until there are too many in all."""
    reasons = [f"reason {n}" for n in range(100, 100 + 2 * AT_ONCE_MAX)]
    for reason in reasons:
        die(store, reason)

    def begin(who):
        """Have a canary wait for its end."""
        browser.access.who = who
        choice = urlencode({"state": "dead", "text": reasons.pop()})
        fields = {"choice": choice, "canary": "1"}
        return browser.post("/bulk/retry", fields).status_code

    assert [begin("ada") for _ in range(5)] == [303] * 4 + [400]
    others = [f"operator-{n}" for n in range(AT_ONCE_MAX - AT_ONCE)]
    for who in others:
        assert [begin(who), begin(who)] == [303, 400], who
    assert begin("one too many") == 400


def test_a_page_of_what_is_not_known_here_is_empty(browser):
    assert "Nothing is under way." in browser.get("/bulk/running?name=x").text
    assert browser.post("/bulk/stop", {"name": "x"}).status_code == 400
