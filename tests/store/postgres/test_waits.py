"""No supervisor waits for a row that another open transaction holds.

A handler's or a user's transaction may hold a job for hours. It is skipped, and its
neighbours get what was requested; a wait is an error after half a second.
"""

from contextlib import contextmanager

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import JobState, Progress
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import hand_back
from jobpool.core.rules.policy import Policy
from jobpool.store.opening import open_store
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.operating import Filter
from support.postgres.server import query_of, server, with_query
from support.store.storing import (
    KINDS,
    begin_run,
    ended,
    lease,
    lease_one,
    new_job,
    started,
    succeeded,
)

_replace = msgspec.structs.replace


@pytest.fixture
def url(store_url):
    return with_query(store_url, options="-c lock_timeout=500")


@pytest.fixture
def store(url, clock):
    store = open_store(url, clock=clock)
    begin_run(store)
    yield store
    store.close()


@contextmanager
def held(url, job_id):
    """Hold a job's row as a transaction that has changed it does."""
    with server().connect(url) as connection, connection.transaction():
        schema = query_of(url)["schema"]
        connection.execute(f"SELECT FROM {schema}.jobs WHERE id = {job_id} FOR UPDATE")
        yield


def two(store, **options):
    return [one.id for one in store.enqueue([new_job(**options)] * 2)]


def ids_leased(store):
    return [one.id for one in store.lease("run-1", {"cpu": 9}, KINDS).leases]


def test_a_lease_skips_held_jobs(store, url):
    """The others are granted; the held one is, as soon as it is free."""
    first, second = two(store)
    with held(url, first):
        assert ids_leased(store) == [second]
    assert ids_leased(store) == [first]


def test_due_jobs_are_promoted_beside_one_that_is_held(store, url, clock):
    """A job that cannot be promoted now is promoted later."""
    first, second = two(store, delay_ms=1000)
    clock.advance(1)
    with held(url, first):
        assert ids_leased(store) == [second]
        assert store.get(first).state is JobState.PENDING
    assert ids_leased(store) == [first]


def test_expired_jobs_are_canceled_beside_one_that_is_held(store, url, clock):
    """And the held one is not granted either."""
    first, second = two(store, expires_in_ms=1000)
    clock.advance(1)
    with held(url, first):
        assert ids_leased(store) == []
        states = [store.get(one).state for one in (first, second)]
        assert states == [JobState.RUNNABLE, JobState.CANCELED]
    assert ids_leased(store) == []
    assert store.get(first).state is JobState.CANCELED


def test_a_held_suspect_blocks_no_other_job(store, url):
    """Other jobs are granted meanwhile."""
    (suspect, _) = two(store)
    granted = {one.id: one for one in lease(store)}
    lost = _replace(ended(granted[suspect], Outcome.LOST), suspect=True)
    others = [hand_back(one) for one in granted.values() if one.id != suspect]
    store.settle([lost, *others])
    with held(url, suspect):
        assert suspect not in ids_leased(store)
    assert store.get(suspect).state is not JobState.LEASED
    assert suspect in ids_leased(store)


SETTLEMENTS = {
    "success": succeeded,
    "failure": ended,
    "return": hand_back,
    "end": lambda one: ended(one, policy=Policy(max_attempts=1)),
}


@pytest.mark.parametrize("settle", SETTLEMENTS.values(), ids=SETTLEMENTS)
def test_neighbours_of_a_held_job_are_settled(store, url, settle):
    """The held one comes later: it is neither stale nor written, nor an attempt."""
    two(store)
    first, second = sorted(lease(store), key=lambda one: one.id)
    with held(url, first.id):
        receipts = store.settle([settle(first), settle(second)])
        assert receipts == [Receipt.LATER, Receipt.ACCEPTED]
        assert store.get(first.id).state is JobState.LEASED
        assert store.get(second.id).state is not JobState.LEASED
        assert store.attempts(first.id) == []
        assert store.settle([settle(second)]) == [Receipt.STALE]
    assert store.settle([settle(first)]) == [Receipt.ACCEPTED]


def test_heartbeats_and_starts_of_held_jobs_are_skipped(store, url, clock):
    """Its neighbours' are written; a heartbeat comes again by itself."""
    two(store)
    first, second = sorted(lease(store), key=lambda one: one.id)
    clock.advance(1)
    with held(url, first.id):
        store.begin_attempts([started(one, "cpu/1") for one in (first, second)])
        store.record([Progress(o.id, o.token, b"1", b"2") for o in (first, second)])
        seen = [store.get(one.id) for one in (first, second)]
    now_ms = clock.utc_ms()
    expected = [(None, None, None, None), ("cpu/1", b"1", b"2", now_ms)]
    assert [
        (j.slot, j.progress, j.checkpoint, j.started_at_ms) for j in seen
    ] == expected
    assert [j.last_heartbeat_at_ms for j in seen] == [None, now_ms]


def succeed(store, ids):
    del ids
    store.settle([succeeded(one) for one in lease(store)])


def fail(store, ids):
    del ids
    once = Policy(max_attempts=1)
    store.settle([ended(one, policy=once) for one in lease(store)])


def quarantine(store, ids):
    del ids
    once = Policy(max_crashes=1)
    store.settle([ended(one, Outcome.CRASHED, policy=once) for one in lease(store)])


def cancel(store, ids):
    store.cancel(ids)


@pytest.mark.parametrize("finish", [succeed, fail, quarantine, cancel])
def test_a_prune_skips_held_jobs(store, url, clock, finish):
    """Its neighbours are deleted, and it is at the next prune."""
    first, second = two(store)
    finish(store, [first, second])
    clock.advance(1)
    at_once = Retention(succeeded_s=0, canceled_s=0, dead_s=0, quarantined_s=0)
    with held(url, first):
        assert store.prune(at_once) == 1
        assert (store.get(first) is None, store.get(second)) == (False, None)
    assert store.prune(at_once) == 1
    assert store.count(Filter()) == 0


def test_a_run_that_its_own_transaction_holds_is_left_alone(store, url, clock):
    """It is active: the search for expired runs does not wait for it."""
    store.enqueue([new_job()])
    lease_one(store)
    clock.advance(61)
    schema = query_of(url)["schema"]
    with server().connect(url) as connection, connection.transaction():
        connection.execute(f"SELECT FROM {schema}.runs FOR UPDATE")
        assert [run.id for run in store.expired_runs()] == ["run-1"]
        with store.transaction():
            assert not store.seize("run-1")
    with store.transaction():
        assert store.seize("run-1")
