"""Pages in use in a real browser: their buttons, what is live, the graph of a flow.

One file, since each starts a browser, and fills a shop if it is its worker's first.
"""

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.store.records.flows import FlowFilter
from jobpool.store.records.operating import AuditFilter, Filter
from support.store.storing import new_job
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
PATIENCE_MS = 60_000
BYTES_MAX = 100 * 1024
FETCHED = """() => [
  ...performance.getEntriesByType("navigation"),
  ...performance.getEntriesByType("resource"),
].map(one => [one.name, one.transferSize])"""
FOCUSED = "document.activeElement.getAttribute('href')"
SCROLLED = "document.getElementById('graph').scrollLeft"


def newest(site, state):
    """Return the address of the newest job of a state."""
    with site.opened() as store:
        return "/jobs/" + store.find(Filter(states=(JobState(state),)), 1)[0].ref


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])
def test_a_button_works_with_and_without_scripts(visit, site, scripts):
    """A form of ours is not taken for another page's; what it asked is shown."""
    page = visit(newest(site, "succeeded"), scripts=scripts)
    assert page.locator("pre[aria-label=Arguments]").count() == 0
    page.get_by_role("button", name="Reveal").click()
    page.wait_for_load_state()
    assert page.locator("pre[aria-label=Arguments]").inner_text().startswith("{")
    with site.opened() as store:
        assert store.audits(AuditFilter(action="reveal"), 1)


@pytest.mark.parametrize("path", ["/", "/jobs"])
def test_the_first_page_is_light(visit, path):
    """All that a browser fetches for it which has nothing of ours yet."""
    fetched = dict(visit(path).evaluate(FETCHED))
    assert any(".css" in name for name in fetched)
    assert all(fetched.values())
    assert sum(fetched.values()) <= BYTES_MAX


def test_an_open_page_shows_what_has_changed(visit, site):
    """Without a reload, and without a step in the browser's history."""
    page = visit("/jobs")
    steps = page.evaluate("history.length")
    page.evaluate("window.isTheSame = true")
    with site.opened() as store:
        store.enqueue([new_job("brand.new", "io")])
    page.locator("#live").get_by_text("brand.new").wait_for(timeout=PATIENCE_MS)
    assert page.evaluate("window.isTheSame")
    assert page.evaluate("history.length") == steps
    moment = page.locator("#live time[title$=UTC]").first
    assert moment.inner_text()


def test_a_form_that_somebody_has_opened_stays(visit, site):
    """Another page shows the change; this one does once the form is closed."""
    page, other = visit("/quotas/mailgun"), visit("/")
    form = page.locator("#live details").first
    form.locator("summary").click()
    field = form.locator("input:visible").first
    field.fill("7")
    with site.opened() as store:
        store.pause(quota="mailgun", note="for a while")
        try:
            other.get_by_text("for a while").first.wait_for(timeout=PATIENCE_MS)
            assert field.input_value() == "7"
            field.blur()
            form.locator("summary").click()
            shown = page.locator("#live").get_by_text("for a while").first
            shown.wait_for(timeout=PATIENCE_MS)
        finally:
            store.resume(quota="mailgun")


def test_nothing_is_shown_anew_below_a_pressed_pointer(visit, site):
    """Also not what was asked for before: to let go at another element is no click."""
    page, asked = visit("/jobs"), []

    def keep(route):
        asked.append(route)

    page.route("**/jobs", keep)
    with site.opened() as store, page.expect_request("**/jobs", timeout=PATIENCE_MS):
        store.enqueue([new_job("brand.new", "io")])
    visit.hold(page)
    for part in ("#nav", "#live"):
        page.evaluate(f"document.querySelector('{part}').dataset.old = 'yes'")
    with page.expect_response("**/jobs", timeout=PATIENCE_MS) as answer:
        asked[0].continue_()
    answer.value.finished()
    assert page.locator("[data-old]").count() == 2
    page.unroute("**/jobs")
    page.evaluate("document.dispatchEvent(new Event('pointerup'))")
    page.locator("#live:not([data-old])").wait_for(timeout=PATIENCE_MS)


@pytest.fixture
def flow(site):
    """An open flow whose graph is wider than a phone."""
    with site.opened() as store:
        return store.flows(FlowFilter(), 1)[0]


def test_a_wide_graph_begins_at_what_happens_and_stays_where_it_was_moved(
    visit, site, flow
):
    """Also when the page shows itself anew."""
    page = visit(f"/flows/{flow.ref}", width="phone")
    assert page.evaluate(SCROLLED) > 0
    box = page.locator(".graph .box.ready, .graph .box.running").first
    # None while the page shows itself anew.
    shown = wait_until(box.bounding_box, PATIENCE_MS / 1000, "the box is shown")
    assert 0 < shown["x"] < 360
    page.evaluate(f"{SCROLLED} = 222")
    page.evaluate("document.querySelector('#live').dataset.old = 'yes'")
    with site.opened() as store:
        assert store.pause_flow(flow.id)
        try:
            page.get_by_role("button", name="Resume").wait_for(timeout=PATIENCE_MS)
        finally:
            store.resume_flow(flow.id)
    assert page.locator("#live[data-old]").count() == 0
    assert page.evaluate(SCROLLED) == 222


def test_the_focus_stays_at_a_link_when_the_page_shows_itself_anew(visit, site, flow):
    """So that somebody with a keyboard gets on while something changes."""
    page = visit(f"/flows/{flow.ref}")
    page.locator(".graph a").last.focus()
    href = page.evaluate(FOCUSED)
    page.evaluate("document.querySelector('#live').dataset.old = 'yes'")
    with site.opened() as store:
        assert store.pause_flow(flow.id)
        try:
            page.get_by_role("button", name="Resume").wait_for(timeout=PATIENCE_MS)
        finally:
            store.resume_flow(flow.id)
    assert page.locator("#live[data-old]").count() == 0
    assert href
    assert page.evaluate(FOCUSED) == href


def test_each_box_leads_to_its_job_or_to_all_of_the_flow(visit, flow):
    """By keyboard as well: a box is a link."""
    page = visit(f"/flows/{flow.ref}")
    visit.hold(page)
    links = page.locator(".graph a")
    found = {links.nth(n).get_attribute("href") for n in range(links.count())}
    assert f"/jobs?flow={flow.ref}" in found
    links.first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    assert page.locator("main h1").inner_text()
