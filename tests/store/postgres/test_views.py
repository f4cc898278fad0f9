"""What the views of a PostgreSQL queue show in psql, without any of our functions."""

import pytest

from jobpool.core.jobs.outcome import Outcome
from support.postgres.server import query_of, server
from support.store.storing import ended, lease_one, new_job


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
    assert ask("SELECT pool, kind, jobs FROM oldest_runnable") == [
        ("cpu", "shop.thumbnail", 2)
    ]
