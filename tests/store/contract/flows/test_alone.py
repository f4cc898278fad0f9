"""Jobs of a flow that somebody lets run again, or replays: none begins early."""

import pytest

from jobpool.core.jobs.flow import Hook, NewStep
from jobpool.core.jobs.job import JobState
from jobpool.store.records.operating import Replay
from support.store.flows import (
    died,
    jobs_of,
    only,
    run_to_end,
    settle_all,
    state,
    states,
    step,
    store_flow,
    unfinished,
)
from support.store.storing import lease, lease_one, new_job, succeeded

WAYS = ["revive", "replay"]


def let_go(store, way, job):
    """Let a job that has ended run again; return how many do."""
    if way == "revive":
        return store.revive([job.id], [job.state])
    return sum(
        one is not None for one in store.replay([Replay(job_id=job.id, new=new_job())])
    )


@pytest.mark.parametrize("way", WAYS)
def test_one_whose_step_has_not_begun_waits_for_it(store, way):
    """It was canceled by hand, and comes back."""
    flow = store_flow(store, step(0), step(1, 0))
    job = only(store, flow, 1)
    assert store.cancel([job.id]) == 1
    assert let_go(store, way, only(store, flow, 1)) == 1
    assert run_to_end(store) == [[0], [1]]
    store.fold()
    assert state(store, flow) == "succeeded"


@pytest.mark.parametrize("way", WAYS)
def test_one_whose_step_is_ready_begins_at_once(store, way):
    flow = store_flow(store, step(0), step(1, 0), members={0: 2})
    first, second = lease(store)
    store.settle([died(first)])
    assert let_go(store, way, jobs_of(store, flow, 0)[0]) == 1
    again = lease_one(store)
    store.settle([succeeded(again), succeeded(second)])
    assert run_to_end(store) == [[1]]
    store.fold()
    assert state(store, flow) == "succeeded"


@pytest.mark.parametrize("way", WAYS)
def test_in_a_paused_flow_it_begins_when_that_goes_on(store, way):
    flow = store_flow(store, step(0), members={0: 2})
    store.settle([died(lease(store)[0])])
    assert store.pause_flow(flow)
    assert let_go(store, way, jobs_of(store, flow, 0)[0]) == 1
    assert lease(store) == ()
    assert store.resume_flow(flow)
    assert settle_all(store) == [0]


@pytest.mark.parametrize("way", WAYS)
def test_in_a_canceled_flow_it_does_not_begin(store, way):
    """It is canceled again, as all of the flow that has not begun."""
    flow = store_flow(store, step(0), step(1, 0), members={0: 2})
    first, second = lease(store)
    store.settle([died(first)])
    assert store.cancel_flow(flow)
    store.fold()
    assert let_go(store, way, jobs_of(store, flow, 0)[0]) == 1
    assert lease(store) == ()
    store.settle([succeeded(second)])
    store.fold()
    assert state(store, flow) == "canceled"
    assert states(store, flow) == ["done", "skipped"]
    assert unfinished(store, flow) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_hooks_job_runs_again_after_the_end(store, way):
    """Alone; the flow stays as it has ended."""
    hook = NewStep(number=1, name="told", hook=Hook.FINISH)
    flow = store_flow(store, step(0), hook)
    assert run_to_end(store, deadly={1}) == [[0], [1]]
    store.fold()
    assert state(store, flow) == "succeeded"
    assert let_go(store, way, only(store, flow, 1)) == 1
    assert run_to_end(store) == [[1]]
    assert jobs_of(store, flow, 1)[-1].state is JobState.SUCCEEDED
    assert state(store, flow) == "succeeded"


def test_a_delay_that_is_over_for_a_job_does_not_begin_anew(store, clock):
    """One that waits for its time is due at once, as any job that is retried."""
    flow = store_flow(store, step(0), job={"delay_ms": 60_000})
    assert lease(store) == ()
    job = only(store, flow, 0)
    assert job.state is JobState.PENDING
    clock.advance(5)
    assert store.revive([job.id], [JobState.PENDING]) == 1
    assert settle_all(store) == [0]
