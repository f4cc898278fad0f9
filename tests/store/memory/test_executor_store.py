"""The executor's store reports every job that has finally ended, and forgets it."""

import threading

import pytest

from jobpool.core.jobs.job import JobState, NewJob, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.executor.host.store import HostStore
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.records.runs import Run

RUN, POOL, KIND = "run", "cpu", "call"


@pytest.fixture
def ended_jobs():
    return []


@pytest.fixture
def store(tmp_path, ended_jobs):
    store = HostStore(MemoryDatabase("test"), tmp_path, ended_jobs.extend)
    store.begin_run(
        Run(id=RUN, host="h", boot_id="b", pid=1, pid_namespace=1, version="0"),
        (),
        3600.0,
    )
    yield store
    store.close()


def leased(store, **options):
    store.enqueue([NewJob(kind=KIND, pool=POOL, payload=b"{}", **options)])
    (lease,) = store.lease(RUN, {POOL: 1}, {POOL: [KIND]}).leases
    return lease


def settle_in_vain(store, settlement):
    with store.transaction():
        store.settle([settlement])
        raise RuntimeError


def settled(lease, state, outcome):
    return Settlement(id=lease.id, token=lease.token, state=state, outcome=outcome)


def test_an_end_is_reported_once_and_forgotten(store, ended_jobs):
    """A job that is to be tried again has not ended."""
    lease = leased(store)
    store.settle([settled(lease, JobState.PENDING, Outcome.CRASHED)])
    assert ended_jobs == []
    (again,) = store.lease(RUN, {POOL: 1}, {POOL: [KIND]}).leases
    end = settled(again, JobState.SUCCEEDED, Outcome.SUCCEEDED)
    store.settle([end])
    assert ended_jobs == [(end, 2)]
    assert store.get(lease.id) is None


def test_an_end_that_becomes_a_cancel_is_reported(store, ended_jobs):
    """The settlement says retry, the store says canceled: it will not run again."""
    lease = leased(store)
    store.cancel([lease.id])
    end = settled(lease, JobState.PENDING, Outcome.CRASHED)
    store.settle([end])
    assert ended_jobs == [(end, 1)]


def test_ends_are_reported_when_their_transaction_has_committed(store, ended_jobs):
    """An end that was undone did not happen."""
    lease = leased(store)
    end = settled(lease, JobState.SUCCEEDED, Outcome.SUCCEEDED)
    with pytest.raises(RuntimeError):
        settle_in_vain(store, end)
    assert ended_jobs == []
    with store.transaction():
        store.settle([end])
        assert ended_jobs == []
    assert ended_jobs == [(end, 1)]


def test_one_threads_transaction_does_not_hide_anothers_end(store, ended_jobs):
    """Each thread has its own store object, as in the host."""
    lease = leased(store)
    other = HostStore(store._database, store.run_root, ended_jobs.extend)
    end = settled(lease, JobState.SUCCEEDED, Outcome.SUCCEEDED)
    thread = threading.Thread(target=other.settle, args=([end],))
    with store.transaction():
        thread.start()
    thread.join(60)
    assert ended_jobs == [(end, 1)]
    other.close()
