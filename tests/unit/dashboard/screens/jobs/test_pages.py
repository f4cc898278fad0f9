"""The pages of jobs: lists that say what they leave out, and what is hidden on them."""

import html
import json
import re

import pytest
from starlette.datastructures import ImmutableMultiDict

from jobpool.core.application.redaction import with_redaction
from jobpool.core.config.settings import TraceLinks
from jobpool.core.jobs.job import JobState, Progress
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.jobs.trace import Tracer
from jobpool.dashboard.screens.jobs import died, listing
from jobpool.dashboard.screens.jobs.choice import (
    choice_of,
    filter_of,
    spot_of,
    spot_text,
    words_of,
)
from jobpool.dashboard.screens.jobs.died import groups_of
from jobpool.operations.jobs import Retry
from jobpool.operations.operate import operate
from jobpool.operations.principal import Principal, Role
from jobpool.operations.redaction import Redactor
from jobpool.operations.selection import Selection
from jobpool.store.records.operating import AuditFilter, Filter
from jobpool.store.records.reading import Spot
from jobpool.words.jobs.states import STATES
from support.browsing import Browser
from support.store.storing import (
    begin_run,
    ended,
    kind_record,
    lease_one,
    new_job,
    succeeded,
)
from unit.dashboard.screens.jobs.test_story import end

ADA = Principal(who="ada", role=Role.ADMIN, origin="a test")


@pytest.fixture(autouse=True)
def time_to_redact(monkeypatch):
    """Let a busy machine tell the dead apart, unless a test is about that."""
    monkeypatch.setattr(died, "_REDACT_S", 30.0)


SECRET = b'{"card":"4242-4242","n":12345678901234567890}'


def path(store, job_id, more=""):
    return f"/jobs/{store.ref_of(job_id)}{more}"


def die(
    store, reason, kind_of=Outcome.FAILED, state="dead", payload=SECRET, **evidence
):
    store.enqueue([new_job(payload=payload)])
    return end(store, state, kind_of, reason=reason, **evidence)


@pytest.mark.parametrize("state", STATES)
def test_a_list_of_each_state_is_shown_also_if_it_is_empty(browser, state):
    answer = browser.get(f"/jobs?state={state}")
    assert answer.status_code == 200
    assert "No job is like this." in answer.text


def test_who_asks_for_a_state_that_is_none_changes_nobody_elses_list(browser, store):
    """What many ask for alike is read once: this is not alike."""
    store.enqueue([new_job()])
    for _ in range(2):
        assert "No job is like this." in browser.get("/jobs?state=nothing").text
        assert 'class="id">' in browser.get("/jobs").text


def test_a_list_goes_on_where_its_page_ended(browser, store, monkeypatch):
    """Each job is on one page, and no page has an id in its address."""
    monkeypatch.setattr(listing, "PAGE", 2)
    made = [one.id for one in store.enqueue([new_job()] * 5)]
    shown, where = [], "/jobs"
    while where:
        text = browser.get(where).text
        shown += re.findall(r'class="id">(\d+)<', text)
        older = re.search(r'href="([^"]*)" rel="next"', text)
        where = older and older[1].replace("&amp;", "&")
    assert shown == [str(one) for one in reversed(made)]


def test_a_list_without_time_says_so(browser, store, monkeypatch):
    monkeypatch.setattr(listing, "_BUDGET_S", -1.0)
    monkeypatch.setattr(listing, "_WINDOW", 1)
    store.enqueue([new_job(tenant="acme"), new_job(tenant="other")])
    text = browser.get("/jobs?tenant=acme").text
    assert "there was no time to look at all jobs" in text
    assert 'rel="next"' in text


@pytest.mark.parametrize(
    "query",
    [
        "state=none",
        "outcome=none",
        "since=yesterday",
        "flow=none",
        "before=x",
        "before=1.x",
    ],
)
def test_a_choice_that_means_nothing_is_no_error(browser, query):
    assert browser.get(f"/jobs?{query}").status_code == 200


def test_a_choice_is_what_its_address_says(store):
    query = ImmutableMultiDict(
        [("state", "retryable"), ("state", "dead"), ("kind", " a "), ("text", "")]
    )
    choice = choice_of(query)
    which = filter_of(choice, store, 0)
    assert set(which.states) == {JobState.PENDING, JobState.DEAD}
    assert (which.kind, which.text) == ("a", None)
    assert choice_of(ImmutableMultiDict(choice.pairs)) == choice
    assert words_of(choice) == "retryable or dead jobs of kind a"
    ended = choice_of(ImmutableMultiDict([("outcome", "timed_out")]))
    assert filter_of(ended, store, 0).outcome is Outcome.TIMED_OUT
    assert words_of(ended) == "jobs whose last attempt ended as timed out"
    assert (
        filter_of(choice_of(ImmutableMultiDict([("state", "x")])), store, 0).ids == ()
    )


def test_a_spot_is_written_by_a_ref(store):
    (one,) = store.enqueue([new_job()])
    text = spot_text(Spot(17, one.id), store)
    assert spot_of(text, store) == (17, one.id)
    assert spot_of(f"17.{one.id}", store) is None
    assert spot_of(f"²{text}", store) is None


def test_deaths_that_differ_in_numbers_are_one_reason(browser, store):
    for size in (512.4, 513, 515.9):
        die(store, f"killed at {size}MiB, over its memory limit of 512MiB")
    die(store, "raised ValueError: no such page")
    groups = groups_of(store.find(Filter()), Redactor(store, ()))
    assert [one.jobs for one in groups] == [3, 1]
    text = browser.get("/dead").text
    assert "3 jobs of" in text
    address = re.search(r'href="(/jobs\?state=dead[^"]*over\+its[^"]*)"', text)[1]
    listed = browser.get(address.replace("&amp;", "&")).text
    assert listed.count("<tr>") == 1 + 3
    assert "Nothing is quarantined." in browser.get("/quarantine").text


def test_a_secret_in_a_reason_is_in_no_group_and_in_no_link(browser, store):
    """Only one job of each group is redacted: that reads what it was given."""
    schema = with_redaction(b"{}", ["card"], ())
    begin_run(store, "run-2", kinds=[kind_record(schema=schema)])
    for _ in range(3):
        die(store, "raised ValueError: no card like 4242-4242 is accepted here")
    text = browser.get("/dead").text
    assert "4242" not in text
    assert "is accepted here" in text
    assert "3 jobs of" in text


def hiding(store, cards):
    """Let jobs die, one of each card, whose kind hides that; each names its own."""
    schema = with_redaction(b"{}", ["card"], ())
    begin_run(store, "run-0", kinds=[kind_record(schema=schema)])
    for card in cards:
        die(
            store,
            f"raised Refused: the card of {card} is refused",
            payload=json.dumps({"card": card}).encode(),
        )


def test_how_many_groups_there_are_tells_nothing_of_what_is_hidden(
    browser, store, monkeypatch
):
    """Jobs are told apart by what is shown of them; also where there is no time."""
    hiding(store, ["anna adams", "bert brown", "bert brown", "carl clark"])
    text = browser.get("/dead").text
    assert text.count('class="panel group"') == 1
    assert "4 jobs of" in text
    assert "is refused" in text
    monkeypatch.setattr(died, "REDACTED_MAX", 0)
    text = browser.get("/dead?kind=shop.thumbnail").text
    assert text.count('class="panel group"') == 1
    assert "4 jobs of" in text
    assert "there was no time to tell them apart" in text
    assert "is refused" not in text


def test_others_that_died_so_are_those_of_which_the_same_is_shown(browser, store):
    hiding(store, ["anna adams", "bert brown"])
    first, second = sorted(job.id for job in store.find(Filter()))
    text = browser.get(path(store, second)).text
    assert path(store, first) in text
    assert "anna" not in text


def test_jobs_are_listed_by_how_they_ended(browser, store):
    """Each group leads to its own."""
    die(store, "killed", Outcome.TIMED_OUT)
    die(store, "raised x", error_class="shop.Declined")
    text = browser.get("/jobs?outcome=timed_out").text
    assert text.count("<tr>") == 1 + 1
    assert '<option value="timed_out" selected>timed out</option>' in text
    assert browser.get("/jobs?error_class=Declined").text.count("<tr>") == 1 + 1
    assert "no attempt ends as" in browser.get("/jobs?outcome=x").text
    groups = html.unescape(browser.get("/dead").text)
    assert "state=dead&kind=shop.thumbnail&outcome=timed_out" in groups
    assert "outcome=failed&error_class=shop.Declined" in groups


def test_what_is_hidden_is_found_by_no_word(browser, store):
    """Else whoever may not see it would spell it out, a letter more each time.

    Nor counted before a bulk, nor changed by one: its numbers would tell.
    """
    schema = with_redaction(b"{}", ["card"], ())
    begin_run(store, "run-0", kinds=[kind_record(schema=schema)])
    job_id = die(store, "raised ValueError: no card like 4242-4242 is accepted here")
    for text, is_found in (("4242-4", False), ("card like", True)):
        listed = browser.get(f"/jobs?state=dead&text={text}").text
        assert ("No job is like this." not in listed) is is_found, text
        plan = browser.get(f"/bulk?act=retry&state=dead&text={text}").text
        assert ("1 job would be retried" in plan) is is_found
        which = Selection(which=Filter(text=text), shown=("dead",))
        done = operate(store, ADA, Retry(jobs=which))
        assert done.matched == is_found
    assert store.get(job_id).state is JobState.RUNNABLE


def test_a_death_is_told_as_a_story_with_others_like_it(browser, store):
    first, second = (die(store, f"raised ValueError: page {n}") for n in (1, 2))
    text = browser.get(path(store, second)).text
    assert "It failed once." in text
    assert "Others that died the same way" in text
    assert path(store, first) in text


def test_what_a_job_was_given_is_hidden_until_somebody_asks(browser, store):
    """Asking is in the audit trail before anything is shown; numbers stay exact."""
    store.enqueue([new_job(payload=SECRET)])
    store.settle([succeeded(lease_one(store), b'{"token":"returned"}')])
    (job,) = store.find(Filter())
    assert "4242" not in browser.get(path(store, job.id)).text
    assert store.audits(AuditFilter()) == []
    shown = browser.post(path(store, job.id, "/reveal")).text
    assert "4242-4242" in shown
    assert 'id="live"' not in shown  # it cannot be asked for anew
    assert "12345678901234567890" in shown
    assert "returned" in shown
    (row,) = store.audits(AuditFilter())
    assert (row.action, row.who, row.jobs) == ("reveal", "ada", 0)
    assert "4242" not in row.target


def test_a_viewer_sees_no_arguments_and_that_they_asked_is_written_down(browser, store):
    job_id = die(store, "x")
    browser.access.role = Role.VIEWER
    assert "/reveal" not in browser.get(path(store, job_id)).text
    answer = browser.post(path(store, job_id, "/reveal"))
    assert answer.status_code == 403
    assert "4242" not in answer.text
    assert [row.action for row in store.audits(AuditFilter())] == ["refused"]


@pytest.mark.parametrize(
    ("verb", "state", "becomes"),
    [
        ("retry", "dead", JobState.RUNNABLE),
        ("release", "quarantined", JobState.RUNNABLE),
        ("cancel", "quarantined", JobState.CANCELED),
    ],
)
def test_a_button_of_a_job_does_what_it_says(browser, store, verb, state, becomes):
    job_id = die(store, "x", state=state)
    assert f"/{verb}" in browser.get(path(store, job_id)).text
    answer = browser.post(path(store, job_id, f"/{verb}"), {"note": "why not"})
    assert answer.headers["location"] == path(store, job_id)
    assert store.get(job_id).state is becomes
    (row,) = store.audits(AuditFilter())
    assert (row.action, row.note) == (verb, "why not")
    assert "why not" in browser.get(path(store, job_id)).text


def test_an_action_that_does_not_apply_says_why(browser, store):
    job_id = die(store, "x")
    answer = browser.post(path(store, job_id, "/release"))
    assert answer.headers.get("location") == path(store, job_id)  # a dead one can be
    answer = browser.post(path(store, job_id, "/release"))
    assert "is runnable; only quarantined, dead jobs can be released" in answer.text


def test_a_running_job_shows_what_it_writes(browser, store):
    """Colours for a terminal are left out; other controls become visible."""
    (one,) = store.enqueue([new_job()])
    granted = lease_one(store)
    beat = Progress(
        id=one.id,
        token=granted.token,
        progress=b"0.25",
        checkpoint=None,
        rss_bytes=2**20,
        output=b"\x1b[31mred\x1b[0m\x1b]0;title\x07 <b>\n",
    )
    store.record([beat])
    text = browser.get(path(store, one.id)).text
    assert "red" in text
    assert "\\x1b]0;title\\x07 &lt;b&gt;" in text
    assert "\\x1b[31m" not in text
    assert 'aria-label="25 %"' in text


@pytest.mark.parametrize("ref", ["1", "x" * 500, "1-aaaa", "%2e%2e"])
def test_a_ref_that_is_none_is_not_found(browser, ref):
    assert browser.get(f"/jobs/{ref}").status_code == 404
    assert browser.post(f"/jobs/{ref}/retry").status_code == 404


def test_an_ended_attempt_stays_with_its_job(browser, store):
    """A job that is tried again shows how it ended before."""
    (one,) = store.enqueue([new_job()])
    store.settle([ended(lease_one(store))])
    assert "Before: It failed once." in browser.get(path(store, one.id)).text


def test_a_job_leads_to_its_trace(opener, store):
    """By the link that was configured; of a trace that nobody records there is none."""
    trace_id = "a" * 32
    links = TraceLinks(link="https://tempo.example/t?id={trace_id}&x=%3C", sample=1.0)
    for flags in ("01", "00"):
        store.enqueue([new_job(trace=f"00-{trace_id}-{'b' * 16}-{flags}")])
    store.enqueue([new_job(), new_job()])
    browser = Browser(opener, traces=links)
    leads = f'href="https://tempo.example/t?id={trace_id}&amp;x=%3C" rel="noreferrer"'
    assert leads in browser.get(path(store, 1)).text
    page = browser.get(path(store, 2)).text
    assert (f"<dd>{trace_id}</dd>" in page, "tempo" in page) == (True, False)
    assert "<dt>trace</dt>" not in browser.get(path(store, 3)).text
    for _ in range(3):
        end(store, "dead")
    own = Tracer(store.trace_key(), 1.0).of(None, 3, 9).trace_id
    assert own in browser.get(path(store, 3)).text
    browser.close()
