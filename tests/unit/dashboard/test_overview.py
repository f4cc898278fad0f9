"""The overview: what needs somebody, each with where to go; pools; why jobs wait."""

import pytest

from jobpool.core.jobs.job import Evidence
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.admission import Admission
from jobpool.dashboard.live.readers import ASKS_MAX, Backlog
from jobpool.dashboard.routes import ROUTES
from jobpool.dashboard.screens.home.needs import needs_of
from jobpool.dashboard.screens.home.overview import held_of, hour_of, why_of
from jobpool.monitoring.glance.glance import Counts, Host
from jobpool.monitoring.glance.reading import count
from jobpool.operations.principal import Role
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.records.alerts import Incident
from jobpool.store.records.flows import AskRow
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.reading import MINUTE_MS, MinuteRow
from support.browsing import Browser
from support.glances import NOW_MS, glance, pool_row
from support.store.storing import ManualClock, ended, lease_one, new_job, started
from support.waiting import wait_until

NAMES = {route.name for route in ROUTES}


def backlog(**facts):
    usual = {
        "counts": Counts(at_ms=NOW_MS),
        "minutes": (),
        "flows": {},
        "incidents": (),
        "concerns": (),
        "stuck": (),
    }
    return Backlog(**usual | facts)


def whats(found):
    return [(need.what, need.name) for need in found.shown]


def test_without_trouble_nothing_needs_anybody():
    assert needs_of(glance(), backlog()).shown == ()


def test_no_supervisor_comes_first_and_says_what_to_type():
    found = needs_of(glance(alive=0), backlog(concerns=["the disk is full"]))
    assert whats(found) == [("No supervisor is running", ""), ("The store", "")]
    assert found.shown[0].command.startswith("jobpool --pools")


def test_of_silent_supervisors_none_is_said_to_be_missing():
    """One that runs and cannot write to its store is not helped by another."""
    why = "supervisor 7 on web-1: no word for 41s, though its process is there"
    found = needs_of(glance(alive=0, silent=(why,)), backlog())
    assert whats(found) == [("No supervisor is heard of", ""), ("Silent", "")]
    assert [need.command for need in found.shown] == ["", ""]
    assert found.shown[1].more == why


@pytest.mark.parametrize(
    ("facts", "what", "name"),
    [
        ({"stuck": [(7, "etl")]}, "Stuck flow", "etl"),
        (
            {
                "incidents": [
                    Incident(
                        id=1,
                        rule="missed_ticks",
                        subject="nightly",
                        summary="a tick is late",
                        opened_at_ms=1,
                    )
                ]
            },
            "Missed ticks",
            "nightly",
        ),
        (
            {
                "incidents": [
                    Incident(
                        id=1,
                        rule="from_the_future",
                        subject="x",
                        summary="?",
                        opened_at_ms=1,
                    )
                ]
            },
            "From the future",
            "x",
        ),
    ],
)
def test_what_was_counted_is_told(facts, what, name):
    found = needs_of(glance(), backlog(**facts))
    assert whats(found) == [(what, name)]
    for need in found.shown:
        assert {way.route for way in need.ways} <= NAMES


def test_decisions_of_one_step_that_wait_are_one_line():
    """With the first of their times; one alone leads to where it is decided."""
    now_ms = backlog().counts.at_ms
    ends_ms = [now_ms + 120_000, now_ms + 60_000]
    asks = [AskRow(n, "order", 1, "ship", end, "r") for n, end in enumerate(ends_ms)]
    other = AskRow(9, "order", 4, "pay", None, "ref-9")
    many, one = needs_of(glance(), backlog(asks=[*asks, other])).shown
    assert (many.what, many.name) == ("2 ask for a decision", "order")
    said = many.more.replace("\xa0", " ")
    assert said == "step ship; the first time runs out in 1 m"
    assert many.ways[0].route == "flows"
    assert (one.what, one.more) == ("Asks for a decision", "step pay")
    assert one.ways[0].parameters == {"ref": "ref-9"}
    full = [AskRow(n, "order", 1, "ship", None, f"ref-{n}") for n in range(ASKS_MAX)]
    (most,) = needs_of(glance(), backlog(asks=full)).shown
    assert most.what == f"At least {ASKS_MAX} ask for a decision"


@pytest.mark.parametrize("what", ["pool", "kind", "tenant", "quota", "store"])
def test_a_pause_leads_to_where_it_is_ended(what):
    pause = PauseRow(what=what, name="" if what == "store" else "x", note="broken")
    (need,) = needs_of(glance(pauses=(pause,)), backlog()).shown
    assert "broken" in need.more
    way, *others = need.ways
    assert (way.route, way.fields["what"]) == ("resume", what)
    assert {one.route for one in others} <= NAMES


def test_without_a_supervisor_no_job_whose_time_has_come_is_said_to_be_not_due(
    tmp_path,
):
    """A supervisor would have made it runnable."""
    clock = ManualClock()
    store = MemoryStore(
        MemoryDatabase(str(tmp_path)),
        clock=clock,
        admission=Admission(),
        run_root=tmp_path / "jobs.run",
    )
    store.enqueue([new_job(delay_ms=ms) for ms in (1000, 2000, 3000, 60_000)])
    clock.advance(5)
    held = held_of(backlog(counts=count(store)))
    assert [(one.by, one.jobs, one.oldest_s) for one in held] == [
        ("no supervisor knows their kind", 3, 4.0),
        ("not due yet", 1, None),
    ]


def test_too_many_are_counted():
    found = needs_of(glance(), backlog(stuck=[(n, f"f{n}") for n in range(30)]))
    assert len(found.shown) + found.left_out == 30
    assert found.left_out > 0


def test_the_reason_of_a_pool_is_what_its_jobs_wait_for_then_its_size():
    host = Host(run_id="run-1", size=4, busy=4, most=8, why="at its most")
    assert why_of(pool_row(hosts=(host,))) == "at its most"
    waits = pool_row(hosts=(host,), due=3, causes=(("quota vendor", 0.9),))
    assert why_of(waits) == "90 % of what is due is held by quota vendor"
    crashes = pool_row(hosts=(host,), due=3, causes=(("crashes", 1.0),))
    assert why_of(crashes) == "100 % of what is due is held by crashes of their kind"
    slots = pool_row(hosts=(host,), due=3, causes=(("slots", 1.0),))
    assert why_of(slots) == "at its most"
    assert why_of(pool_row(hosts=())) == "no supervisor serves it"
    assert why_of(pool_row(size=4, busy=1)) == "3 idle"


def test_the_hour_has_each_whole_minute_and_not_the_present_one():
    now = NOW_MS // MINUTE_MS
    rows = [
        MinuteRow(minute=now - 61, succeeded=1000, failed=0),
        MinuteRow(minute=now - 60, succeeded=1, failed=0),
        MinuteRow(minute=now - 1, succeeded=4, failed=2),
        MinuteRow(minute=now, succeeded=1000, failed=0),
    ]
    hour = hour_of(backlog(minutes=rows))
    assert (hour.succeeded, hour.failed) == (5, 2)
    assert [hour.minutes[0], hour.minutes[-1]] == [now - 60, now - 1]
    assert hour.plot.stops[-1].values == (4, 2)


def shown(browser, text):
    """Return the overview if it has a text; on a busy machine a read may be late."""
    page = browser.get("/").text
    return page if text in page else None


def test_a_death_is_on_the_page_with_the_way_to_it(browser, store):
    """As soon as the page is asked for after it."""
    store.enqueue([new_job()] * 2)
    lease = lease_one(store)
    store.begin_attempts([started(lease, "cpu/1")])
    store.settle(
        [ended(lease, Outcome.OUT_OF_MEMORY, evidence=Evidence(reason="<b>513 MiB"))]
    )
    dead = lease_one(store)
    store.settle([ended(dead, give_up=True, evidence=Evidence(reason="gone"))])
    page = wait_until(lambda: shown(browser, "1 dead"), 30, "the death is shown")
    assert 'href="/dead?kind=shop.thumbnail"' in page
    assert "<b>513" not in page
    assert "not due yet" in page


def test_what_was_changed_here_is_seen_at_once(browser, store):
    """Who acts does not look at what was read before."""
    wait_until(lambda: shown(browser, "nothing is due"), 30, "the page is whole")
    assert not shown(browser, "Everything is paused")
    assert browser.post("/pause", {"what": "store"}).status_code in (200, 303)
    wait_until(lambda: shown(browser, "Everything is paused"), 30, "it is shown")
    assert shown(browser, ">Resume</button>")
    browser.access.role = Role.VIEWER
    assert not shown(browser, ">Resume</button>")
    browser.access.role = Role.OPERATOR
    assert browser.post("/resume", {"what": "store"}).status_code in (200, 303)
    wait_until(lambda: not shown(browser, "is paused"), 30, "it goes on")


def test_a_store_that_cannot_be_read_is_said(tmp_path):
    from jobpool.errors import StoreUnavailable

    def opener():
        raise StoreUnavailable("the disk is gone")

    browser = Browser(opener)
    page = browser.get("/")
    assert page.status_code == 200
    assert "the disk is gone" in page.text
    browser.close()


def test_search_leads_to_what_was_meant(browser, store):
    """A ref, an id, a kind; anything else is looked for among the jobs."""
    (made,) = store.enqueue([new_job()])
    ref = store.get(made.id).ref

    def goal(text):
        answer = browser.get("/search", params={"q": text})
        assert answer.status_code == 303
        return answer.headers["Location"]

    assert goal(ref) == goal(str(made.id)) == goal(f" {ref} ") == f"/jobs/{ref}"
    assert goal("shop.thumbnail") == "/kinds/shop.thumbnail"
    assert goal("") == "/jobs"
    for text in ("999999", "9" * 60, "1-forged", "card declined", "/etc", "//evil"):
        assert goal(text).startswith("/jobs?text=")
