"""What the views of a PostgreSQL queue show in psql, without any of our functions."""

import pytest

from jobpool.core.jobs.outcome import Outcome
from support.postgres.server import query_of, server
from support.store.quotas import publish, quota, stamped
from support.store.storing import ended, lease, lease_one, new_job


@pytest.fixture
def ask(store_url):
    """Query a view by its bare name, as a user does."""
    schema = query_of(store_url)["schema"]
    with server().connect(store_url) as connection:
        connection.execute(f"SET search_path = {schema}")
        yield lambda question: connection.execute(question).fetchall()


def test_dead_letters_are_the_dead_and_the_quarantined(store, ask):
    """With their reasons; unfinished and successful jobs are not among them."""
    store.enqueue([new_job()] * 4)
    store.settle([ended(lease_one(store), Outcome.CRASHED, give_up=True)])
    lease_one(store)
    (again,) = store.enqueue([new_job(priority=5)])
    for _ in range(3):
        granted = lease_one(store)
        assert granted.id == again.id
        store.settle([ended(granted, Outcome.CRASHED, retry_in_s=0)])
    found = ask("SELECT id, state, outcome, reason FROM dead_letters ORDER BY id")
    assert found == [
        (1, "dead", "crashed", "the handler gave up"),
        (again.id, "quarantined", "crashed", "crash 3 of 3"),
    ]


def test_views_show_leases_and_waiting_jobs(store, ask):
    """Which run holds what until when, and which job waits since when."""
    store.enqueue([new_job()] * 3)
    granted = lease_one(store)
    (held,) = ask("SELECT id, supervisor FROM leases")
    assert held == (granted.id, "run-1")
    assert ask("SELECT pool, kind, jobs, blocked FROM oldest_runnable") == [
        ("cpu", "shop.thumbnail", 2, 0)
    ]


def test_views_tell_what_waits_for_a_quota(store, ask):
    """Its age is not that of what could run."""
    publish(store, quota(concurrency=1, per="tenant"))
    store.enqueue([stamped(tenant="a")] * 3)
    lease(store)
    view = "SELECT jobs, blocked, oldest_open_age_s IS NULL FROM oldest_runnable"
    assert ask(view) == [(2, 2, True)]
    store.enqueue([stamped(tenant="b")] * 2)
    assert ask(view) == [(4, 2, False)]
