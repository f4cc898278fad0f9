"""How many supervisors a pool needs: not for what they could not run; 0 is a number."""

import pytest

from jobpool.core.rules.circuit_breaker import BreakerState, Saved
from support.store.quotas import publish, quota, stamped
from support.store.scheduling import put
from support.store.storing import (
    begin_run,
    kind_record,
    lease,
    new_job,
    succeeded,
)

KIND = "shop.thumbnail"
LONG_AGO_MS = 1_000_000_000_000
"""In 2001."""


@pytest.fixture
def served(store):
    """A supervisor has served two pools: four slots, and up to sixteen."""
    kinds = [kind_record(), kind_record("shop.mail", "io")]
    begin_run(store, kinds=kinds, pools={"cpu": "4", "io": "2..16"})
    return store


def wanted(store):
    return {
        row.pool: (row.running, row.due, row.slots, row.wanted_replicas)
        for row in store.scaling()
    }


def test_a_pool_with_nothing_to_do_needs_none(served):
    assert wanted(served) == {"cpu": (0, 0, 4, 0), "io": (0, 0, 16, 0)}


def test_running_and_due_jobs_need_their_slots(served):
    """Running ones count, or supervisors with running jobs would be removed."""
    served.enqueue([new_job()] * 9)
    assert wanted(served)["cpu"] == (0, 9, 4, 3)
    leases = lease(served, limit=4)
    assert wanted(served)["cpu"] == (4, 5, 4, 3)
    served.settle([succeeded(one) for one in leases])
    assert wanted(served)["cpu"] == (0, 5, 4, 2)


def test_the_slots_are_known_while_no_supervisor_runs(served, clock):
    """From zero, with the size of the last one."""
    served.end_run("run-1")
    served.enqueue([new_job()] * 5)
    assert wanted(served)["cpu"] == (0, 5, 4, 2)
    clock.advance(1)
    begin_run(served, "run-2", kinds=[kind_record()], pools={"cpu": "8"})
    assert wanted(served)["cpu"] == (0, 5, 8, 1)


def test_jobs_whose_time_has_come_count_before_anybody_has_seen_that(served, clock):
    """Without a supervisor nothing makes them runnable; the view has its own clock."""
    clock.now_ms = LONG_AGO_MS
    served.enqueue([new_job(run_at_ms=2**42)])
    assert wanted(served)["cpu"] == (0, 0, 4, 0)
    served.enqueue([new_job(delay_ms=60_000)] * 5)
    clock.advance(61)
    assert wanted(served)["cpu"] == (0, 5, 4, 2)


def test_a_tick_that_is_due_brings_a_supervisor_back(served, clock):
    """From zero: nobody else would enqueue its job."""
    clock.now_ms = LONG_AGO_MS
    put(served)
    clock.advance(61)
    assert wanted(served)["cpu"] == (0, 1, 4, 1)


def test_what_is_paused_or_unknown_needs_none(served):
    served.enqueue([new_job()] * 5 + [new_job("shop.gone")])
    served.pause(kind=KIND)
    assert wanted(served)["cpu"] == (0, 0, 4, 0)
    served.resume(kind=KIND)
    assert wanted(served)["cpu"] == (0, 5, 4, 2)
    served.pause(pool="cpu")
    assert wanted(served)["cpu"] == (0, 0, 4, 0)
    served.resume(pool="cpu")
    served.pause(whole_store=True)
    assert wanted(served)["cpu"] == (0, 0, 4, 0)


def test_what_waits_for_a_quota_needs_none(store):
    publish(store, quota(concurrency=1))
    store.enqueue([stamped()] * 9)
    lease(store)
    assert [(row.running, row.due) for row in store.scaling()] == [(1, 0)]


def test_a_kind_whose_breaker_is_open_needs_room_for_its_probe(served):
    served.enqueue([new_job()] * 40)
    served.save_breakers(
        [
            Saved(
                kind=KIND,
                state=BreakerState.OPEN,
                crashes=20,
                last_job=1,
                wait_s=60.0,
            )
        ]
    )
    assert wanted(served)["cpu"] == (0, 1, 4, 1)
