"""A flow that has ended goes on: what failed runs again, and what came after it."""

import msgspec
import pytest

from jobpool.core.jobs.flow import Failure, Hook, NewStep, When
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import UsageError
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
from support.store.storing import ended, lease, lease_one, new_job, succeeded


def hook(number, when):
    """Return a hook."""
    return NewStep(number=number, name=str(when), hook=when)


def newest(store, flow, number):
    """Return the members of a step that no other has replaced."""
    return [job for job in jobs_of(store, flow, number) if job.replaced_by is None]


def end(store, flow):
    """Fold, and return how the flow is."""
    store.fold()
    return state(store, flow)


def test_what_failed_runs_again_and_then_what_waited_for_it(store):
    """It keeps its row; what never began is replaced; nothing else runs again."""
    flow = store_flow(store, step(0), step(1, 0), step(2, 1), step(3))
    assert run_to_end(store, deadly={1}) == [[0, 3], [1]]
    assert end(store, flow) == "failed"
    before = only(store, flow, 1)
    assert store.retry_flow(flow)
    assert not store.retry_flow(flow)
    assert states(store, flow) == ["done", "ready", "closed", "done"]
    assert run_to_end(store) == [[1], [2]]
    assert end(store, flow) == "succeeded"
    again = only(store, flow, 1)
    assert (again.id, again.attempt, again.failures) == (before.id, 2, 0)
    old, new = jobs_of(store, flow, 2)
    assert (old.state, old.replaced_by) == (JobState.CANCELED, new.id)
    assert (new.state, new.replays) == (JobState.SUCCEEDED, old.id)
    assert store.flow(flow).row.generation == 2
    assert store.flow_of(new.id).generation == 2
    assert not store.retry_flow(flow)


def test_a_retry_may_fail_and_be_retried(store):
    """Each is a generation; replaced rows are not replaced again."""
    flow = store_flow(store, step(0), step(1, 0))
    for generation in (1, 2, 3):
        assert run_to_end(store, deadly={0}) == [[0]]
        assert end(store, flow) == "failed"
        assert len(jobs_of(store, flow, 1)) == generation
        assert store.retry_flow(flow)
    assert run_to_end(store) == [[0], [1]]
    assert end(store, flow) == "succeeded"
    assert [job.state for job in newest(store, flow, 1)] == [JobState.SUCCEEDED]
    assert store.flow(flow).row.generation == 4


def test_of_many_members_those_that_failed_run_again(store):
    """Results stay in the order of the calls."""
    flow = store_flow(store, step(0), step(1, 0), members={0: 3})
    leases = lease(store)
    store.settle([succeeded(leases[0]), died(leases[1]), succeeded(leases[2])])
    assert end(store, flow) == "failed"
    assert store.retry_flow(flow)
    again = lease_one(store)
    assert again.id == leases[1].id
    store.settle([succeeded(again)])
    assert run_to_end(store) == [[1]]
    found = store.step_results(flow, [0], 0, 10)
    assert [row.job_id for row in found] == [one.id for one in leases]


def test_what_has_run_after_a_failure_waits_again(store):
    """It is replaced in order, and skipped if the failure is none any more."""
    flow = store_flow(
        store,
        step(0),
        step(1, 0, when=When.FAILED),
        step(2, 0, when=When.FINISHED),
        members={2: 3},
    )
    assert run_to_end(store, deadly={0}) == [[0], [1, 2, 2, 2]]
    assert end(store, flow) == "failed"
    payloads = [store.payload(job.id) for job in jobs_of(store, flow, 2)]
    assert store.retry_flow(flow)
    assert run_to_end(store) == [[0], [2, 2, 2]]
    assert end(store, flow) == "succeeded"
    assert states(store, flow) == ["done", "skipped", "done"]
    old, new = jobs_of(store, flow, 2)[:3], newest(store, flow, 2)
    assert [job.replays for job in new] == [job.id for job in old]
    assert [store.payload(job.id) for job in new] == payloads
    rows = store.step_results(flow, [2], 0, 10)
    assert [row.job_id for row in rows] == [job.id for job in new]
    assert [job.state for job in newest(store, flow, 1)] == [JobState.CANCELED]


def test_what_was_not_needed_is_not_needed_again(store):
    """Nothing before it has failed: it, and what came after it, stays as it was."""
    flow = store_flow(
        store,
        step(0),
        step(1, 0, when=When.FAILED),
        step(2, 1, when=When.FINISHED),
        step(3),
        failure=Failure.CONTINUE,
    )
    assert run_to_end(store, deadly={3}) == [[0, 3], [2]]
    assert end(store, flow) == "failed"
    assert store.retry_flow(flow)
    assert states(store, flow) == ["done", "skipped", "done", "ready"]
    assert run_to_end(store) == [[3]]
    assert end(store, flow) == "succeeded"


def test_hooks_run_once_a_generation(store):
    """Those that fit the new end; so there is one that has run for each."""
    flow = store_flow(
        store, step(0), *map(hook, (1, 2, 3), (Hook.SUCCESS, Hook.FAILURE, Hook.FINISH))
    )
    assert run_to_end(store, deadly={0}) == [[0], [2, 3]]
    assert end(store, flow) == "failed"
    assert store.retry_flow(flow)
    assert run_to_end(store) == [[0], [1, 3]]
    assert end(store, flow) == "succeeded"
    assert states(store, flow) == ["done", "done", "skipped", "done"]
    assert len(jobs_of(store, flow, 3)) == 2


def test_a_canceled_flow_goes_on(store):
    """Also what was running and what had not begun."""
    flow = store_flow(store, step(0), step(1, 0), step(2))
    first = lease_one(store)
    assert store.cancel_flow(flow)
    assert not store.retry_flow(flow)
    store.fold()
    store.settle([ended(first, Outcome.CANCELED)])
    assert end(store, flow) == "canceled"
    assert store.retry_flow(flow)
    assert run_to_end(store) == [[0, 2], [1]]
    assert end(store, flow) == "succeeded"
    assert unfinished(store, flow) == []


def test_an_approval_that_came_too_late_may_come_now(store, clock):
    """Its time begins again."""
    asked = NewStep(number=0, name="ask", external=True, timeout_ms=60_000)
    flow = store_flow(store, asked, step(1, 0))
    clock.advance(60)
    store.fold()
    assert end(store, flow) == "failed"
    assert store.retry_flow(flow)
    assert store.flow(flow).steps[0].until_ms == clock.utc_ms() + 60_000
    store.fold()
    assert only(store, flow, 0).state is JobState.WAITING
    assert store.approve(only(store, flow, 0).id, b"1")
    assert run_to_end(store) == [[1]]
    assert end(store, flow) == "succeeded"


def test_delays_and_expiries_count_for_nothing_in_a_retry(store, clock):
    """What expired would expire again."""
    options = {"delay_ms": 5000, "expires_in_ms": 20_000}
    flow = store_flow(store, step(0), step(1, 0), job=options)
    clock.advance(30)
    assert settle_all(store) == []
    assert end(store, flow) == "failed"
    assert store.retry_flow(flow)
    store.fold()
    clock.advance(1000)
    assert run_to_end(store) == [[0], [1]]
    assert end(store, flow) == "succeeded"


def test_a_member_of_a_step_that_has_ended_is_not_run_alone(store):
    """Nothing would come of it: neither a retry nor a replay changes anything."""
    flow = store_flow(store, step(0), step(1, 0))
    assert run_to_end(store, deadly={0}) == [[0]]
    assert end(store, flow) == "failed"
    for number in (0, 1):
        job = only(store, flow, number)
        assert store.revive([job.id], [job.state]) == 0
        assert store.replay([Replay(job_id=job.id, new=new_job())]) == [None]
        assert only(store, flow, number).state is job.state


def test_a_flow_is_not_retried_while_a_member_runs_or_if_one_is_erased(store):
    """A hook may be run again alone; its flow waits for that."""
    flow = store_flow(store, step(0), step(1, 0), hook(2, Hook.FINISH))
    assert run_to_end(store, deadly={0, 2}) == [[0], [2]]
    assert end(store, flow) == "failed"
    assert store.revive([only(store, flow, 2).id], [JobState.DEAD]) == 1
    with pytest.raises(UsageError, match=r"wait until that has ended.*nothing was"):
        store.retry_flow(flow)
    assert run_to_end(store) == [[2]]
    assert store.erase([only(store, flow, 1).id]) == 1
    with pytest.raises(UsageError, match=r"was erased .* nothing was changed"):
        store.retry_flow(flow)
    assert state(store, flow) == "failed"
    assert states(store, flow) == ["done", "skipped", "done"]


@pytest.mark.parametrize("flow", [0, 10**30])
def test_only_a_flow_that_has_ended_is_retried(store, flow):
    """Nor one that there is not."""
    assert not store.retry_flow(flow)
    assert not store.retry_flow(store_flow(store, step(0)))


def adding(settlement, count):
    """Return a success that adds members to its step."""
    return msgspec.structs.replace(settlement, added=(new_job(),) * count)


def test_what_a_step_had_added_is_dropped_if_its_adder_runs_again(store):
    """It adds that anew; what was added by what was added goes with it."""
    flow = store_flow(
        store, step(0), step(1, 0, when=When.FINISHED), step(2, 1), members={1: 2}
    )
    assert settle_all(store, deadly={0}) == [0]
    adder, other = lease(store)
    store.settle([adding(succeeded(adder), 2), succeeded(other)])
    one, two = lease(store)
    store.settle([adding(succeeded(one), 1), succeeded(two)])
    assert run_to_end(store) == [[1], [2]]
    assert end(store, flow) == "failed"
    assert store.retry_flow(flow)
    again, other_again = newest(store, flow, 1)
    former = jobs_of(store, flow, 1)[:5]
    assert [job.replaced_by for job in former] == [again.id, other_again.id] + [
        again.id
    ] * 3
    assert settle_all(store) == [0]
    store.settle([adding(succeeded(one), 3) for one in lease(store)])
    assert run_to_end(store) == [[1] * 6, [2]]
    assert end(store, flow) == "succeeded"
    assert len(store.step_results(flow, [1], 0, 100)) == 2 + 6


def test_what_was_added_and_failed_runs_again_without_its_adder(store):
    """Its adder has succeeded, and adds nothing twice."""
    flow = store_flow(store, step(0), step(1, 0))
    store.settle([adding(succeeded(lease_one(store)), 3)])
    first, *others = lease(store)
    store.settle([died(first), *map(succeeded, others)])
    assert end(store, flow) == "failed"
    assert store.retry_flow(flow)
    assert run_to_end(store) == [[0], [1]]
    assert end(store, flow) == "succeeded"
    assert len(newest(store, flow, 0)) == 4
