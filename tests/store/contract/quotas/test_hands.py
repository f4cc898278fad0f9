"""What a hand does to the tables of quotas: it costs a second, not a job."""

import sqlite3
from contextlib import closing

import pytest

from jobpool.core.config.settings import Retention
from support.postgres.server import query_of, server
from support.store.quotas import KIND, enqueue, ids, publish, quota
from support.store.storing import lease, new_job, succeeded

ENGINES = ["sqlite", "postgres"]


@pytest.fixture
def hand(store):
    """Return what runs a statement on a store's tables."""
    if store.url.startswith("sqlite"):
        path = store.url.removeprefix("sqlite:///")
        connection = sqlite3.connect(path, isolation_level=None)
        prefix = "jobpool_"
    else:
        connection = server().connect(store.url)
        prefix = f"{query_of(store.url)['schema']}."
    with closing(connection):
        yield lambda text: connection.execute(text.format(prefix=prefix)).rowcount


@pytest.mark.parametrize("table", ["lanes", "buckets", "lane_notes", "bucket_notes"])
def test_jobs_whose_lanes_buckets_or_notes_are_deleted_are_found_again(
    store, hand, clock, table
):
    """Jobs and leases are the truth."""
    publish(store, quota(concurrency=2, per="args.vendor"))
    made = [enqueue(store, 2, values={"vendor": name}) for name in "ab"]
    (granted, _) = lease(store, limit=2)
    store.settle([succeeded(granted)])
    hand(f"DELETE FROM {{prefix}}{table}")  # noqa: S608 - our own
    clock.advance(2)
    found = lease(store)
    clock.advance(2)
    found += lease(store)
    assert len({*ids(found)}) == 2
    assert {*ids(found)} <= {*made[0], *made[1]}


def test_a_job_that_a_hand_makes_runnable_has_its_permit_back(store, hand, clock):
    """Its former lease is over, whatever ended it."""
    publish(store, quota(concurrency=1))
    enqueue(store, 1)
    (granted,) = lease(store)
    assert lease(store) == ()
    changed = hand(
        "UPDATE {prefix}jobs SET state = 'runnable', token = NULL, supervisor = NULL, "
        "leased_at_ms = NULL"
    )
    assert changed == 1
    clock.advance(2)
    assert ids(lease(store)) == [granted.id]


def test_a_stamp_that_a_hand_has_removed_is_made_again(store, hand):
    """From the arguments, as for a job that no client has stamped."""
    publish(store, quota(concurrency=1, per="args.vendor"))
    for name in ("a", "a", "b"):
        payload = f'{{"vendor":"{name}"}}'.encode()
        store.enqueue([new_job(KIND, payload=payload)])
    assert len(lease(store)) == 2
    hand("UPDATE {prefix}jobs SET lane = NULL, quota_values = NULL")
    store.settle([succeeded(one) for one in store.leases_of("run-1")])
    assert len(lease(store)) == 1


def test_notes_are_not_heaped_up_where_no_quota_is_in_force(store, hand):
    """A client may stamp what no supervisor knows; and later it counts."""
    publish(store, needs={KIND: []})
    enqueue(store, 3)
    store.settle([succeeded(one) for one in lease(store, limit=1)])
    assert store.prune(Retention()) == 0
    assert hand("DELETE FROM {prefix}lane_notes") == 0
    publish(store, quota(concurrency=1))
    assert len(lease(store)) == 1
