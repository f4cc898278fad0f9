"""Flows in the browser: the list, one of them, and what is done about it."""

import pytest

from jobpool.core.jobs.flow import FlowState
from jobpool.dashboard.screens.flows.listing import PAGE
from jobpool.operations.principal import Role
from jobpool.store.records.flows import FlowFilter
from support.store.flows import only, run_to_end, step, store_flow


@pytest.fixture
def order(store):
    """An order: charge, then ship; its first job may begin."""
    flow = store_flow(
        store, step(0, name="charge"), step(1, 0, name="ship"), key="1042", tenant="a"
    )
    store.fold()
    return flow


def ref_of(store, flow):
    (row,) = store.flows(FlowFilter(ids=(flow,)))
    return row.ref


def test_flows_are_listed_by_what_the_url_says(browser, store, order):
    store_flow(store, step(0), name="report")
    everything = browser.get("/flows").text
    assert ">order</a>" in everything
    assert ">report</a>" in everything
    some = browser.get("/flows", params={"name": "order", "state": "open"}).text
    assert ">order</a>" in some
    assert ">report</a>" not in some
    assert "No flow is like this." in browser.get("/flows?state=ready").text
    assert "No flow is like this." in browser.get("/flows?key=none").text


def test_a_long_list_has_pages_that_follow_one_another(browser, store):
    for n in range(PAGE + 3):
        store_flow(store, step(0), name=f"flow-{n}")
    first = browser.get("/flows?state=open").text
    assert first.count(">flow-") == PAGE
    ref = ref_of(store, 4)
    assert f'href="/flows?before={ref}&amp;state=open"' in first
    second = browser.get(f"/flows?state=open&before={ref}").text
    assert second.count(">flow-") == 3
    assert "Older" not in second


def test_what_waits_for_a_decision_stands_above_the_list(browser, store):
    """And in the overview, each with the way to where it is decided; viewers see it."""
    step_of = {"external": True, "timeout_ms": 60_000}
    flow = store_flow(store, step(0, name="<b>sign", **step_of), name="invoice")
    store.fold()
    way = f'href="/flows/{ref_of(store, flow)}">Decide</a>'
    for path, words in (("/flows", "Waiting for a decision"), ("/", "Asks for a deci")):
        page = browser.get(path).text
        assert words in page
        assert "&lt;b&gt;sign" in page
        assert way in page
    browser.access.role = Role.VIEWER
    page = browser.get("/flows").text
    assert ("Waiting for a decision" in page, "Decide</a>" in page) == (True, False)
    store.approve(only(store, flow, 0).id, b"1")
    assert "Waiting for a decision" not in browser.get("/flows").text


def test_one_flow_says_how_far_it_is_and_what_it_waits_for(browser, store, order):
    page = browser.get(f"/flows/{ref_of(store, order)}").text
    assert "0 of 2 jobs ended." in page
    assert "Waits for step 0 charge: 1 job due, waiting for a slot." in page
    assert page.count('class="box ') == 2
    assert "jobpool flows" not in page


def test_what_a_flow_is_called_is_never_markup(browser, store):
    flow = store_flow(store, step(0, name="<script>x</script>\u202e"), name="<b>&\x1b")
    page = browser.get(f"/flows/{ref_of(store, flow)}").text
    assert "<script>x" not in page
    assert "<b>&" not in page
    assert "&lt;script&gt;x&lt;/script&gt;\\u202e" in page


@pytest.mark.parametrize("ref", ["flow-1-aaaa", "1", "flow-1"])
def test_a_flow_that_is_none_of_this_store_is_not_found(browser, order, ref):
    """An id alone leads nowhere."""
    assert browser.get(f"/flows/{ref}").status_code == 404
    assert browser.post(f"/flows/{ref}/pause").status_code == 404


def test_a_flow_is_paused_resumed_and_canceled(browser, store, order):
    """Each leads back to the flow; what changes nothing says so."""
    ref = ref_of(store, order)
    for action, state in (
        ("pause", FlowState.PAUSED),
        ("resume", FlowState.OPEN),
        ("cancel", FlowState.CANCELED),
    ):
        answer = browser.post(f"/flows/{ref}/{action}", {"note": "as asked"})
        assert answer.status_code == 303
        assert answer.headers["Location"] == f"/flows/{ref}"
        store.fold()
        assert store.flow(order).row.state is state
    again = browser.post(f"/flows/{ref}/pause")
    assert again.status_code == 200
    assert "Nothing was changed" in again.text


def test_what_failed_is_retried(browser, store, order):
    run_to_end(store, deadly=(0,))
    ref = ref_of(store, order)
    assert store.flow(order).row.state is FlowState.FAILED
    page = browser.get(f"/flows/{ref}").text
    assert "Failed: step 0 charge: 1 job dead." in page
    assert f'action="/flows/{ref}/retry"' in page
    assert browser.post(f"/flows/{ref}/retry").status_code == 303
    assert store.flow(order).row.generation == 2


def test_a_step_that_waits_for_somebody_is_approved_with_a_result(browser, store):
    """What is no JSON approves nothing."""
    flow = store_flow(store, step(0, name="look", external=True), step(1, 0))
    store.fold()
    ref = ref_of(store, flow)
    job = store.get(only(store, flow, 0).id)
    assert f'name="job" value="{job.ref}"' in browser.get(f"/flows/{ref}").text
    bad = browser.post(f"/flows/{ref}/approve", {"job": job.ref, "result": "{by"})
    assert bad.status_code == 400
    assert "nothing was approved" in bad.text
    fields = {"job": job.ref, "result": '{"by": "ann"}'}
    assert browser.post(f"/flows/{ref}/approve", fields).status_code == 303
    assert store.get(job.id).result == b'{"by":"ann"}'


def test_a_viewer_sees_no_button_and_is_refused(browser, store, order):
    browser.access.role = Role.VIEWER
    ref = ref_of(store, order)
    assert 'method="post"' not in browser.get(f"/flows/{ref}").text
    assert browser.post(f"/flows/{ref}/cancel").status_code == 403
    assert store.flow(order).row.state is FlowState.OPEN
