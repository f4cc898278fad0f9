"""Quotas beside the transactions of handlers and producers, and after a restore."""

import contextlib
import sqlite3
from contextlib import closing

import pytest

from jobpool.core.jobs.job import PermitAnswer, PermitAsk
from jobpool.store.records.jobs import Receipt
from support.postgres.server import server
from support.site.handler_site import Site
from support.store.quotas import OTHER, enqueue, publish, quota, stamped
from support.store.storing import (
    begin_run,
    ended,
    lease,
    lease_one,
    new_job,
    succeeded,
)

ENGINES = ["sqlite", "postgres"]


@pytest.fixture
def site(new_store_url, clock):
    with closing(Site(new_store_url(), clock)) as site:
        yield site


@contextlib.contextmanager
def a_callers_connection(store):
    if store.url.startswith("sqlite"):
        path = store.url.removeprefix("sqlite:///")
        opened = sqlite3.connect(path, isolation_level=None)
    else:
        opened = server().connect(store.url)
    with contextlib.closing(opened) as connection:
        yield connection


@pytest.mark.parametrize("end", [succeeded, ended])
def test_a_job_that_its_handler_completed_holds_its_permit_until_it_is_settled(
    site, end
):
    """Until then its process may use what the permit stands for."""
    publish(site.store, quota(concurrency=1))
    enqueue(site.store, 2)
    granted = lease_one(site.store)
    site.complete(granted)
    assert lease(site.store) == ()
    (row,) = site.store.buckets("stripe")
    assert row.used == 1
    assert site.store.settle([end(granted)]) == [Receipt.COMPLETED]
    assert len(lease(site.store)) == 1


def test_a_job_that_was_completed_by_a_run_that_ended_holds_nothing(site, clock):
    """Nobody will settle it: it is seen when its bucket is looked at again."""
    publish(site.store, quota(concurrency=1))
    publish(site.store, quota(concurrency=1), run_id="run-2", host="b")
    enqueue(site.store, 2)
    site.complete(lease_one(site.store))
    assert lease(site.store, "run-2") == ()
    site.store.end_run("run-1")
    clock.advance(2)
    assert len(lease(site.store, "run-2")) == 1


def test_jobs_of_a_callers_transaction_are_held_to_their_quotas_once_it_commits(
    store_factory,
):
    """And leave nothing behind if it does not."""
    store = store_factory()
    publish(store, quota(concurrency=1))
    with a_callers_connection(store) as connection:
        connection.execute("BEGIN")
        store.enqueue([stamped(), stamped()], connection)
        connection.execute("ROLLBACK")
        assert lease(store) == ()
        connection.execute("BEGIN")
        store.enqueue([stamped(), stamped()], connection)
        connection.execute("COMMIT")
    assert len(lease(store)) == 1
    assert lease(store) == ()


def test_permits_of_a_backup_are_those_of_its_leases(store_factory, clock):
    """A restored store counts what its leases hold, until they are given back."""
    store = store_factory()
    publish(store, quota(concurrency=2))
    enqueue(store, 4)
    granted = lease(store)
    position = store.position()
    store.begin_anew(tokens=position.tokens + 100, last_id=position.last_id + 100)
    begin_run(store, "run-2", host="b")
    publish(store, quota(concurrency=2), run_id="run-2", host="b")
    assert lease(store, "run-2") == ()
    store.settle([ended(granted[0])])
    assert len(lease(store, "run-2")) == 1


def test_what_such_a_run_held_keeps_no_larger_cost_waiting(site, clock):
    """Also where no kind needs a quota, so that nobody leases from lanes."""
    store, cap = site.store, quota(concurrency=3)
    publish(store, cap, run_id="run-1", needs={})
    publish(store, cap, run_id="run-2", host="b", needs={})
    store.enqueue([new_job(OTHER)] * 2)
    (one,), (two,) = lease(store, limit=1), lease(store, "run-2", limit=1)
    runs = {"run-1": one, "run-2": two}

    def take(run_id):
        job = runs[run_id]
        asks = [PermitAsk(job.id, job.token, 1, "stripe", "", 2)]
        return store.take_permits(run_id, asks) == [PermitAnswer(granted=True)]

    assert take("run-1")
    site.complete(one)
    assert not take("run-2")
    store.end_run("run-1")
    clock.advance(2)
    assert take("run-2")
