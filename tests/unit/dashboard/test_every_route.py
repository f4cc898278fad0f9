"""Each line of the table of routes: who may, who is kept out, and what breaks nothing.

The dashboard has no description of its HTTP that programs read, as schemathesis needs:
it answers people. Its table of routes is that description here.
"""

from contextlib import closing
from functools import partial
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobpool.core.jobs.job import JobState
from jobpool.operations.operate import REFUSED
from jobpool.operations.principal import Role
from jobpool.store.opening import open_store
from jobpool.store.records.flows import FlowFilter
from jobpool.store.records.operating import AuditFilter, Filter
from support.browser.places import FORMS, PAGES, address_of
from support.browsing import HOST, Browser
from support.lively.fill import lively_file

ROLES = list(Role)
CASES = [(route, role) for route in (*PAGES, *FORMS) for role in ROLES]
OTHERS_PAGES = {
    "it says nothing": {},
    "another site": {"Sec-Fetch-Site": "cross-site", "Origin": f"http://{HOST}"},
    "another port": {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:9"},
    "another origin": {"Origin": "http://evil.example"},
    "a frame in a sandbox": {"Origin": "null"},
    "no page at all": {"Sec-Fetch-Site": "none"},
    "another site, with a token": {
        "Sec-Fetch-Site": "cross-site",
        "Authorization": "Bearer x",
    },
}
FIELDS = {
    "quota_set": {"concurrency": "3"},
    "tenant_set": {"tenant": "acme", "concurrency": "2"},
    "tenant_remove": {"tenant": "acme"},
    "pause": {"what": "kind", "name": "feed.import"},
    "resume": {"what": "kind", "name": "feed.import"},
    "schedule_backfill": {"from": "2h", "agreed": "yes"},
    "bulk_retry": {"choice": "state=dead&kind=shop.none"},
    "bulk_release": {"choice": "state=quarantined&kind=shop.none"},
    "bulk_cancel": {"choice": "state=runnable&kind=shop.none"},
}
"""What a form says beyond what its address does; others are complete without."""
UNRECORDED = {"bulk_stop"}
"""What changes nothing in the store leaves no refusal in it."""
TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["", "-1", "0", "1e999", "9" * 30, "%00", "../..", "'\"><b>", "\x00", "2h"]
    ),
)
NAMED = sorted(
    {"what", "name", "kind", "state", "tenant", "key", "from", "to", "for", "note"}
    | {"rate", "burst", "concurrency", "weight", "agreed", "job", "result", "before"}
    | {"after", "q", "since", "who", "action", "pool", "limit", "page", "ids", "flow"}
)
QUICKLY = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def named(case):
    return f"{case[0].name}-{case[1].text}"


@pytest.fixture(scope="module")
def opener(tmp_path_factory):
    path = lively_file(tmp_path_factory.mktemp("shop"), hours=0.5, share=0.1)
    return partial(open_store, f"sqlite:///{path}", create=False)


@pytest.fixture(scope="module")
def store(opener):
    with closing(opener()) as found:
        yield found


@pytest.fixture(scope="module")
def browser(opener):
    browser = Browser(opener)
    yield browser
    browser.close()


@pytest.fixture(autouse=True)
def admin(browser):
    browser.access.role = Role.ADMIN


@pytest.fixture(scope="module")
def addresses(store):
    """As they are at the beginning: what is done does not lead to others."""
    fresh = Filter(states=(JobState.WAITING,), kind="external.approve")
    job = store.find(fresh, 1)[0].ref
    FIELDS["flow_approve"] = {"job": job}
    return {one.name: address_of(store, one) for one in (*PAGES, *FORMS)}


def state_of(store):
    """Return all that forms can change, but the trail."""
    return (
        {state: store.count(Filter(states=(state,))) for state in JobState},
        [flow.state for flow in store.flows(FlowFilter(), 1000)],
        store.pauses(),
        [(one.name, one.override) for one in store.quotas()],
        store.schedules(),
        store.tenants(),
    )


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_route_is_for_its_least_role_and_above(browser, store, addresses, case):
    """Below it nothing changes, and that somebody has tried is in the trail."""
    route, role = case
    browser.access.role = role
    before = state_of(store) if role < route.least else None
    if route.action is None:
        status = browser.get(addresses[route.name]).status_code
    else:
        fields = FIELDS.get(route.name, {})
        status = browser.post(addresses[route.name], fields).status_code
    assert (status == 403) is (role < route.least)
    assert status < 500
    if role < route.least:
        assert state_of(store) == before
    if role < route.least and route.action and route.name not in UNRECORDED:
        (entry,) = store.audits(AuditFilter(), 1)
        assert (entry.who, entry.action, entry.jobs) == ("ada", REFUSED, 0)
        assert f'"{route.action.name}"' in entry.target


@pytest.mark.parametrize("route", FORMS, ids=lambda route: route.name)
def test_no_form_is_taken_from_anything_but_our_own_page(
    browser, store, addresses, route
):
    """Whoever asks: a browser is made to ask by any page that it shows."""
    before = state_of(store), len(store.audits(AuditFilter(), 1000))
    for why, headers in OTHERS_PAGES.items():
        answer = browser.post(
            addresses[route.name], FIELDS.get(route.name, {}), headers=headers
        )
        assert answer.status_code == 403, why
    assert (state_of(store), len(store.audits(AuditFilter(), 1000))) == before


@pytest.mark.parametrize("route", FORMS, ids=lambda route: route.name)
def test_nothing_changes_by_following_a_link(browser, store, addresses, route):
    before = state_of(store)
    answer = browser.get(addresses[route.name], params=FIELDS.get(route.name, {}))
    assert answer.status_code in {200, 400, 404, 405}
    assert state_of(store) == before


@QUICKLY
@given(
    st.sampled_from(PAGES),
    st.dictionaries(st.sampled_from(NAMED), TEXTS, max_size=4),
)
def test_a_page_answers_whatever_is_asked_of_it(browser, addresses, route, query):
    """It is shown, or it says what is wrong: it never fails."""
    answer = browser.get(addresses[route.name], params=query)
    assert answer.status_code in {200, 303, 400, 404, 409}


@QUICKLY
@given(
    st.sampled_from(FORMS),
    st.dictionaries(st.sampled_from(NAMED), TEXTS, max_size=5),
)
def test_a_form_answers_whatever_it_holds(browser, addresses, route, fields):
    answer = browser.post(addresses[route.name], fields)
    assert answer.status_code in {200, 303, 400, 404, 409}


@QUICKLY
@given(st.sampled_from((*PAGES, *FORMS)), TEXTS)
def test_an_address_of_nothing_is_not_found(browser, route, text):
    path = route.path
    while "{" in path:
        name = path.partition("{")[2].partition("}")[0]
        path = path.replace(f"{{{name}}}", quote(text or "-", safe=""))
    ask = browser.get if route.action is None else browser.post
    assert ask(path).status_code in {200, 303, 400, 404, 405, 409}
