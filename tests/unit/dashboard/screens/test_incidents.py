"""Incidents in the browser: what is wrong, what the manual says to do, who was told."""

import html

import pytest

from jobpool.dashboard.screens.home.incidents import line_of
from jobpool.dashboard.screens.home.runbooks import runbook_of
from jobpool.monitoring.alerts.catalogue import RULES
from jobpool.store.records.alerts import AlertEvent, Found, Incident, Turn

FULL = Found(rule="oldest_age", subject="cpu", summary="a job of cpu waits for 20m")
LATE = Found(rule="missed_ticks", subject="a/b<i>", summary="its tick is late")


def found(store, *opened, ended=(), receivers=()):
    turn = store.watch().turn
    store.take_turn(
        Turn(number=turn, notes="{}", opened=opened, ended=ended, receivers=receivers)
    )


def page_of(browser):
    return html.unescape(browser.get("/incidents").text)


def test_where_nobody_watches_that_is_said(browser, store):
    """It is no good news that nothing was found."""
    assert "Nobody watches." in page_of(browser)
    found(store)
    assert "Nothing is wrong that a rule has found." in page_of(browser)


def test_an_incident_has_its_runbook_and_the_way_to_its_cause(browser, store):
    """What is safe and what is not, before anybody acts; the navigation counts it."""
    found(store, FULL)
    page = page_of(browser)
    assert "A job of cpu waits for 20m." in page
    assert "Safe: <code>jobpool status --why</code> says what due jobs wait for" in page
    assert "Unsafe: raising sizes while the host swaps" in page
    assert 'href="/jobs?pool=cpu"' in page
    assert 'href="/incidents">Incidents<b class="bad">1</b>' in browser.get("/").text
    assert 'href="/incidents">What to do' in browser.get("/").text


@pytest.mark.parametrize(
    ("rule", "subject", "said"),
    [
        ("failure_rate", "pdf.render", "jobpool pause --kind pdf.render"),
        ("failure_rate", "a; rm -rf b", "jobpool pause --kind 'a; rm -rf b'"),
        ("failure_rate", "", "jobpool pause --kind K"),
        ("missed_ticks", "nightly", "jobpool schedules show nightly"),
        ("no_supervisor", "cpu", "jobpool --pools cpu=4"),
    ],
)
def test_the_commands_of_a_runbook_name_what_the_incident_is_about(rule, subject, said):
    """They can be pasted, whatever it is called."""
    lines = runbook_of(RULES[rule], subject)
    assert said in [one.text for line in lines for one in line.words if one.is_code]


def test_names_of_an_incident_are_never_markup(browser, store):
    found(store, LATE)
    page = browser.get("/incidents").text
    assert "<i>" not in page
    assert "/schedules/a%2Fb%3Ci%3E" in page


def test_whom_it_was_told_to_is_said_and_whom_in_vain(browser, store):
    found(store, FULL, receivers=("command", "webhook"))
    first = store.claim_alert(("command",), 10.0)
    store.settle_alert(first, AlertEvent.TAKEN)
    second = store.claim_alert(("webhook",), 10.0)
    store.settle_alert(second, AlertEvent.REFUSED, after_s=9, error="status 503")
    page = page_of(browser)
    assert "Told to" in page
    assert "webhook not yet, tried 1 time: status 503" in page
    assert "command at <time" in page


def test_what_has_ended_is_listed_apart(browser, store):
    found(store, FULL)
    (incident,) = store.incidents()
    found(store, ended=(incident.id,))
    page = page_of(browser)
    assert "Nothing is wrong that a rule has found." in page
    assert page.index("Ended lately") < page.index(FULL.summary)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_each_rule_has_a_runbook_that_says_what_is_safe_and_what_is_not(rule):
    lines = runbook_of(rule)
    steps = [
        "".join(part.text for part in line.words) for line in lines if line.is_item
    ]
    assert {step.partition(":")[0] for step in steps} == {"Safe", "Unsafe"}
    assert not any("](" in step or "`" in step for step in steps)


def test_a_rule_of_another_version_has_no_runbook_and_no_way():
    """Nor has an incident about more subjects than there is room for."""
    other = Incident(
        id=1, rule="from_the_future", subject="x", summary="?", opened_at_ms=1
    )
    line = line_of(other, ())
    assert (line.title, line.runbook, line.way) == ("From the future", (), None)
    many = Incident(id=2, rule="ratio", subject="", summary="?", opened_at_ms=1)
    assert line_of(many, ()).way is None
