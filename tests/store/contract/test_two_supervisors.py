"""Two supervisors on one database: neither gets what the other has."""

import threading

from jobpool.core.jobs.job import JobState
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.operating import Filter
from support.store.storing import (
    KINDS,
    begin_run,
    handed_back,
    lease,
    lease_one,
    new_job,
    succeeded,
)


def test_two_supervisors_share_the_work_without_overlap(store_factory):
    """Leasing at the same time from two threads, every job is granted once."""
    first, second = store_factory(), store_factory()
    begin_run(first, "a")
    begin_run(second, "b")
    first.enqueue([new_job()] * 600)
    granted = {"a": [], "b": []}

    def work(store, run_id):
        batch = None
        while batch is None or batch.leases or batch.next_due_in_s is not None:
            batch = store.lease(run_id, {"cpu": 7}, KINDS)
            granted[run_id] += batch.leases
            left = [succeeded(one) for one in batch.leases]
            while left:  # The other one may hold a row briefly while it reads it.
                receipts = store.settle(left)
                assert set(receipts) <= {Receipt.ACCEPTED, Receipt.LATER}
                left = [
                    one
                    for one, receipt in zip(left, receipts, strict=True)
                    if receipt is Receipt.LATER
                ]

    threads = [
        threading.Thread(target=work, args=(first, "a")),
        threading.Thread(target=work, args=(second, "b")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [one.id for leases in granted.values() for one in leases]
    tokens = [one.token for leases in granted.values() for one in leases]
    assert len(ids) == len(set(ids)) == len(set(tokens)) == 600
    assert first.count(Filter(states=(JobState.SUCCEEDED,))) == 600


def test_a_reclaimed_lease_fences_its_former_holder(store_factory):
    """The survivor takes over under a newer token; the late answer changes nothing."""
    first, second = store_factory(), store_factory()
    begin_run(first, "a")
    begin_run(second, "b")
    first.enqueue([new_job()])
    mine = lease_one(first, "a")
    (found,) = second.leases_of("a")
    assert second.settle([handed_back(found)]) == [True]
    second.end_run("a")
    theirs = lease_one(second, "b")
    assert theirs.token > mine.token
    assert first.settle([succeeded(mine, b"1")]) == [False]
    assert not first.renew("a", 60)
    assert second.settle([succeeded(theirs, b"2")]) == [True]
    assert first.get(mine.id).result == b"2"


def test_a_pause_by_one_supervisor_applies_to_the_other(store_factory):
    """The database stores the pause."""
    first, second = store_factory(), store_factory()
    begin_run(second, "b")
    first.enqueue([new_job()])
    first.pause(pool="cpu")
    assert lease(second, "b") == ()
