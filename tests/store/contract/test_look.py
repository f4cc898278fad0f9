"""Looks at jobs: pages of bounded cost, that together show each job once."""

import pytest

from jobpool.core.jobs.job import FINISHED, Evidence, JobState, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.records.operating import Filter
from support.store.storing import begin_run, lease, new_job, succeeded

STATES = ["dead", "succeeded", "quarantined", "canceled", "pending", "runnable"]


OUTCOMES = {
    "dead": Outcome.FAILED,
    "quarantined": Outcome.CRASHED,
    "canceled": Outcome.CANCELED,
}


def ended_as(state, granted):
    if state == "succeeded":
        return succeeded(granted)
    return Settlement(
        id=granted.id,
        token=granted.token,
        state=JobState(state),
        outcome=OUTCOMES[state],
        evidence=Evidence(
            reason=f"as {state}: 100 %_\\", error_class=f"shop.errors.{state.title()}"
        ),
    )


@pytest.fixture
def shop(store, clock):
    """Thirty jobs of six states, by state; the first were the last to end."""
    begin_run(store)
    ids = [one.id for one in store.enqueue([new_job(tenant="acme")] * 24)]
    granted = {one.id: one for one in lease(store, limit=24)}
    jobs = {state: ids[n * 5 : n * 5 + 5] for n, state in enumerate(STATES[:4])}
    jobs["runnable"] = ids[20:]
    for state in ("canceled", "quarantined", "succeeded", "dead"):
        for job_id in jobs[state]:
            clock.advance(1)
            store.settle([ended_as(state, granted[job_id])])
    store.cancel(jobs["runnable"])
    jobs["pending"] = [one.id for one in store.enqueue([new_job(delay_ms=10**7)] * 4)]
    jobs["runnable"] = [one.id for one in store.enqueue([new_job(key="k-7")])]
    return jobs


def pages(store, which, limit=3, window=7):
    """Return the ids of each page, until there are no more."""
    found, before = [], None
    while True:
        looked = store.look(which, limit, before, window)
        assert len(looked.jobs) <= limit
        found.append([job.id for job in looked.jobs])
        if looked.spot is None:
            return found
        before = looked.spot


FILTERS = [
    Filter(),
    Filter(states=(JobState.DEAD,)),
    Filter(states=(JobState.DEAD, JobState.SUCCEEDED)),
    Filter(states=FINISHED),
    Filter(states=(JobState.PENDING,)),
    Filter(states=(JobState.PENDING, JobState.DEAD)),
    Filter(states=(JobState.LEASED,)),
    Filter(tenant="acme"),
    Filter(kind="none"),
    Filter(text="as dead"),
    Filter(text="100 %_\\"),
    Filter(text="AS DEAD"),
    Filter(text="acme", states=(JobState.QUARANTINED,)),
    Filter(text="k-7"),
    Filter(text="nul\0"),
    Filter(key="k-7"),
    Filter(ids=(1, 2, 3, 4, 5, 6, 7, 99)),
    Filter(since_ms=10**15),
    Filter(outcome=Outcome.FAILED),
    Filter(outcome=Outcome.LOST),
    Filter(outcome=Outcome.CRASHED, error_class="Dead"),
    Filter(error_class="shop.errors.Dead", kind="work"),
    Filter(error_class="Dead"),
    Filter(error_class=""),
    Filter(error_class="nul\0"),
]


def test_all_pages_together_are_what_is_found(store, shop):
    """Each job once, whatever a page may hold and however few are looked at."""
    for which in FILTERS:
        meant = sorted(job.id for job in store.find(which))
        assert store.count(which) == len(meant), which
        for limit, window in ((3, 7), (50, 50)):
            found = pages(store, which, limit, window)
            assert sorted(one for page in found for one in page) == meant, which
    assert [one.id for one in store.find(Filter(text="k-7"))] == shop["runnable"]
    assert len(store.find(Filter(text="as dead: 100 %_\\"))) == 5


def test_jobs_are_found_by_how_their_last_attempt_has_ended(store, shop):
    """An error's class by its whole name, or by its last parts; never by half a one."""

    def found(**which):
        return [job.id for job in store.find(Filter(**which))]

    dead, canceled = shop["dead"][::-1], shop["canceled"][::-1]
    assert found(outcome=Outcome.FAILED) == dead
    assert found(outcome=Outcome.SUCCEEDED) == shop["succeeded"][::-1]
    for name in ("shop.errors.Dead", "errors.Dead", "Dead"):
        assert found(error_class=name) == dead
    for name in ("ead", "dead", "shop.errors", "Dead.", "", "%Dead", "_ead"):
        assert not found(error_class=name), name
    assert found(outcome=Outcome.CANCELED, error_class="Canceled") == canceled
    assert not found(outcome=Outcome.FAILED, error_class="Canceled")
    rows = store.groups(Filter(error_class="Dead"))
    assert [(row.outcome, row.jobs) for row in rows] == [("failed", 5)]


def test_what_has_ended_is_listed_by_its_end(store, shop):
    """The latest first; a job that began earlier may have ended later."""
    which = Filter(states=(JobState.DEAD, JobState.QUARANTINED))
    together = [one for page in pages(store, which) for one in page]
    assert together == shop["dead"][::-1] + shop["quarantined"][::-1]


@pytest.mark.parametrize(
    "states", [None, (JobState.PENDING,), (JobState.DEAD, JobState.PENDING)]
)
def test_anything_else_is_listed_by_its_id(store, shop, states):
    del shop
    together = [one for page in pages(store, Filter(states=states)) for one in page]
    assert together == sorted(together, reverse=True)
    assert len(together) >= 4


def test_a_look_at_jobs_shows_what_get_shows(store, shop):
    looked = store.look(Filter(states=FINISHED), 100)
    assert len(looked.jobs) > len(shop["dead"])
    assert [store.get(job.id) for job in looked.jobs] == list(looked.jobs)


def test_jobs_are_counted_by_state_up_to_a_number(store, shop):
    counts = store.tally(3)
    assert counts["dead"] == counts["pending"] == 3
    assert counts["runnable"] == 1
    assert counts["leased"] == 3
    assert store.tally(100)["leased"] == 4
    assert store.tally(100)["dead"] == len(shop["dead"])
    assert set(counts) == {state.value for state in JobState}
