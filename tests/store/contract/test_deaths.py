"""How a store counts deaths of supervisors, and what was running at the same time."""

import pytest

from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.suspects import (
    DEATHS_WITHIN_S,
    Deaths,
)
from support.store.storing import KINDS, begin_run, ended, lease, new_job


def test_deaths_are_counted_with_the_jobs_that_were_running(store, clock):
    """Deaths of others within the last ten minutes; checked twice it is one death."""
    for number in range(2, 6):
        begin_run(store, f"run-{number}")
    assert store.note_death("run-1", 3) == Deaths(leaving=False, with_jobs=0, idle=0)
    assert store.note_death("run-1", 0) == Deaths(leaving=False, with_jobs=0, idle=0)
    assert store.note_death("run-2", 1) == Deaths(leaving=False, with_jobs=1, idle=0)
    assert store.note_death("run-3", 0) == Deaths(leaving=False, with_jobs=2, idle=0)
    assert store.note_death("run-4", 0) == Deaths(leaving=False, with_jobs=2, idle=1)
    clock.advance(DEATHS_WITHIN_S + 1)
    assert store.note_death("run-5", 1) == Deaths(leaving=False, with_jobs=0, idle=0)


def test_the_end_of_a_host_is_one_death(store, clock):
    """All supervisors of one boot died at once: none counts as another's death."""
    for number in (2, 3):
        begin_run(store, f"run-{number}")
    begin_run(store, "run-4", boot_id="later")
    for run_id, beside in (("run-1", 0), ("run-2", 3), ("run-3", 6)):
        clock.advance(1)
        assert store.note_death(run_id, 3, with_host=True) == Deaths(
            leaving=False, with_jobs=0, idle=0, beside=beside
        )
    assert store.note_death("run-4", 1, with_host=True) == Deaths(
        leaving=False, with_jobs=3, idle=0
    )


@pytest.mark.parametrize("order", [("run-1", "run-2"), ("run-2", "run-1")])
def test_an_idle_supervisor_that_dies_with_its_host_clears_no_job(store, clock, order):
    """Otherwise it would clear the job that killed both, for ten minutes."""
    begin_run(store, "run-2")
    begin_run(store, "run-3", boot_id="later")
    store.enqueue([new_job()])
    lease(store)
    clock.advance(1)
    for run_id in order:
        ran = int(run_id == "run-1")
        store.note_death(run_id, ran, with_host=True)
        for held in store.leases_of(run_id):
            store.settle([ended(held, Outcome.LOST)])
    assert store.note_death("run-3", 1, with_host=True) == Deaths(
        leaving=False, with_jobs=1, idle=0
    )


def test_runs_lost_together_are_known_in_any_order(store, clock):
    """Of one boot and one time: leases that are not taken yet, and lost ones."""
    begin_run(store, "run-2")
    begin_run(store, "else", boot_id="elsewhere")
    store.enqueue([new_job()] * 3)
    store.lease("run-1", {"cpu": 1}, KINDS)
    store.lease("run-2", {"cpu": 1}, KINDS)
    store.lease("else", {"cpu": 1}, KINDS)
    clock.advance(1)
    assert store.note_death("run-1", 1).beside == 1
    store.settle([ended(held, Outcome.LOST) for held in store.leases_of("run-1")])
    assert store.note_death("run-2", 1).beside == 1
    assert store.note_death("else", 1).beside == 0
    assert store.note_death("unknown", 1).beside == 0


def test_runs_that_are_alive_or_died_earlier_were_not_lost_together(store, clock):
    """Known to be alive, seen to live on, or lost before the other's last lease."""
    begin_run(store, "run-2")
    store.enqueue([new_job()] * 2)
    for run_id in ("run-1", "run-2"):
        store.lease(run_id, {"cpu": 1}, KINDS)
    assert store.note_death("run-1", 1).beside == 1
    assert store.note_death("run-1", 1, living=("own", "run-2")).beside == 0
    clock.advance(31)
    store.renew("run-2", 60.0, anew=True)
    assert store.note_death("run-1", 1).beside == 0
    assert store.note_death("run-1", 1, with_host=True).beside == 1
    store.note_death("run-2", 1)
    store.settle([ended(held, Outcome.LOST) for held in store.leases_of("run-2")])
    assert store.note_death("run-1", 1, with_host=True).beside == 1
    clock.advance(1)
    store.enqueue([new_job()])
    store.lease("run-1", {"cpu": 1}, KINDS)
    assert store.note_death("run-1", 1, with_host=True).beside == 0


def test_a_requested_end_counts_as_no_death(store):
    """It is recorded as requested, and does not count for others."""
    begin_run(store, "run-2")
    store.note_leaving("run-1")
    store.note_leaving("run-1")
    store.note_leaving("unknown")
    leaving = {run.id: run.is_leaving for run in store.open_runs()}
    assert leaving == {"run-1": True, "run-2": False}
    assert store.note_death("run-1", 2).leaving
    assert store.note_death("run-2", 2) == Deaths(leaving=False, with_jobs=0, idle=0)


def test_a_run_that_has_ended_is_no_longer_leaving(store):
    """Reports after its end have no effect."""
    store.end_run("run-1")
    store.note_leaving("run-1")
    assert not store.note_death("run-1", 0).leaving
