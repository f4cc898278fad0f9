"""How few statements the usual path takes: plain ends are settled at once."""

import pytest

from jobpool.core.jobs.job import Evidence
from jobpool.store.postgres.connection import session as postgres
from jobpool.store.sqlite.connection import session as sqlite
from support.store.scheduling import declared
from support.store.storing import ended, lease, new_job, succeeded

ENGINES = ["sqlite", "postgres"]
CLOSER_CHECK = {"hold_leases", "settle_jobs", "insert_attempts"}


@pytest.fixture
def asked(monkeypatch):
    """Names of the statements that are run, in order."""
    asked = []

    def noting(method):
        def run(self, name, /, **parameters):
            asked.append(name)
            return method(self, name, **parameters)

        return run

    for session in (sqlite.Session, postgres.Session):
        for name in ("rows", "run"):
            monkeypatch.setattr(session, name, noting(getattr(session, name)))
    return asked


def test_plain_successes_are_settled_at_once(store, new_store_url, asked):
    """With any figures and results: their rows are not read first."""
    del new_store_url
    store.enqueue([new_job()] * 3)
    granted = lease(store)
    del asked[:]
    store.settle(
        [
            succeeded(granted[0]),
            succeeded(granted[1], None, duration_s=1.0, peak_rss_bytes=7),
            succeeded(granted[2], b"", cpu_s=0.5, slot="cpu/1"),
        ]
    )
    assert asked.count("succeed_jobs") == 1
    assert not CLOSER_CHECK & set(asked)


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(reason="x"),
        Evidence(error="x"),
        Evidence(error_class="x"),
    ],
    ids=str,
)
def test_a_success_with_a_reason_or_error_keeps_it(
    store, new_store_url, asked, evidence
):
    """The short path has room for figures only, so it is not taken."""
    del new_store_url
    store.enqueue([new_job()] * 2)
    first, second = lease(store)
    expected = {
        name: getattr(evidence, name) for name in ("reason", "error", "error_class")
    }
    store.settle([succeeded(first, **expected), succeeded(second)])
    assert set(asked) >= {"succeed_jobs", "hold_leases", "settle_jobs"}
    job = store.get(first.id)
    assert {name: getattr(job, name) for name in expected} == expected


def test_an_unsuccessful_end_is_not_tried_as_a_success(store, new_store_url, asked):
    """That saves a statement."""
    del new_store_url
    store.enqueue([new_job()])
    (granted,) = lease(store)
    del asked[:]
    store.settle([ended(granted)])
    assert "succeed_jobs" not in asked
    assert set(asked) >= CLOSER_CHECK


def test_schedules_that_have_nothing_to_do_cost_one_query(store, new_store_url, asked):
    """Each supervisor asks every second; and nothing is written."""
    del new_store_url
    store.put_schedule(declared())
    store.tick()
    del asked[:]
    store.tick()
    assert asked == ["schedules_due"]


def test_only_the_lease_of_a_tick_asks_what_tick_it_is(
    store, new_store_url, asked, clock
):
    """A plain job costs nothing more."""
    del new_store_url
    store.put_schedule(declared())
    store.tick()
    store.enqueue([new_job()] * 2)
    del asked[:]
    lease(store)
    assert "scheduled" not in asked
    clock.advance(60)
    store.tick()
    lease(store)
    assert asked.count("scheduled") == 1
