"""Some of what has failed runs again, also while the rest of its flow goes on."""

import pytest

from jobpool.core.jobs.flow import RETRIED, Failure, Hook, NewStep, When
from jobpool.core.jobs.job import JobState
from jobpool.errors import UsageError
from jobpool.store.memory.flows import retry as in_memory
from jobpool.store.operations.flows import retry
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

FINISHED = When.FINISHED


def end(store, flow):
    """Fold, and return how the flow is."""
    store.fold()
    return state(store, flow)


def begun(store):
    """Lease all that may begin; return the leases by the number of their step."""
    return {store.flow_of(one.id).number: one for one in lease(store)}


def test_of_those_that_failed_the_one_that_is_named_runs_again(store):
    """The others stay as they are, and the flow has failed again at its end."""
    flow = store_flow(
        store, step(0), step(1), step(2, 0), step(3, 1), failure=Failure.CONTINUE
    )
    assert run_to_end(store, deadly={0, 1}) == [[0, 1]]
    assert end(store, flow) == "failed"
    assert store.retry_flow(flow, [only(store, flow, 0).id])
    assert states(store, flow) == ["ready", "done", "closed", "skipped"]
    assert run_to_end(store) == [[0], [2]]
    assert end(store, flow) == "failed"
    assert states(store, flow) == ["done", "done", "done", "skipped"]
    assert store.flow(flow).row.generation == 2


def test_a_step_that_ended_begins_anew_while_others_of_its_flow_run(store):
    """Nothing happens to those, and all that comes after both waits for both."""
    flow = store_flow(
        store, step(0), step(1), step(2, 0), step(3, 1, 2), failure=Failure.CONTINUE
    )
    leases = begun(store)
    store.settle([died(leases[0])])
    assert end(store, flow) == "open"
    assert states(store, flow) == ["done", "ready", "skipped", "closed"]
    assert not store.retry_flow(flow)
    assert store.retry_flow(flow, [leases[0].id])
    assert states(store, flow) == ["ready", "ready", "closed", "closed"]
    assert run_to_end(store) == [[0], [2]]
    store.settle([succeeded(leases[1])])
    assert run_to_end(store) == [[3]]
    assert end(store, flow) == "succeeded"


def test_what_was_left_out_for_the_failure_begins_as_well(store):
    """Whole steps, and the jobs of one that had begun; not those that failed."""
    flow = store_flow(store, step(0), step(1), step(2, 1), members={1: 3})
    first, *others = lease(store, limit=2)
    store.settle([died(first)])
    assert lease(store) == ()
    assert states(store, flow) == ["done", "ready", "skipped"]
    assert [job.state for job in jobs_of(store, flow, 1)][1:] == [JobState.CANCELED] * 2
    assert store.retry_flow(flow, [first.id])
    store.settle([succeeded(one) for one in others])
    assert run_to_end(store) == [[0, 1, 1], [2]]
    assert end(store, flow) == "succeeded"


def test_it_is_refused_while_something_after_it_runs(store):
    """Also a hook; once that has ended, it has a new row."""
    hook = NewStep(number=3, name="told", hook=Hook.FINISH)
    flow = store_flow(store, step(0), step(1, 0, when=FINISHED), step(2, 1), hook)
    assert settle_all(store, deadly={0}) == [0]
    failed = only(store, flow, 0)
    for number in (1, 2, 3):
        running = lease_one(store)
        assert store.flow_of(running.id).number == number
        with pytest.raises(UsageError, match=rf"its job {running.id}, .* nothing was"):
            store.retry_flow(flow, [failed.id])
        store.settle([succeeded(running)])
        if number == 1:
            assert store.retry_flow(flow, [failed.id])
            assert states(store, flow) == ["ready", "closed", "closed", "closed"]
            assert settle_all(store, deadly={0}) == [0]
            assert settle_all(store) == [1]
    assert [job.replaced_by is None for job in jobs_of(store, flow, 1)] == [False, True]
    assert end(store, flow) == "failed"


def test_what_is_about_to_begin_after_it_waits_again(store):
    """In order, and what had not begun is canceled: others take the places of all."""
    flow = store_flow(store, step(0), step(1, 0, when=FINISHED), members={1: 3})
    assert settle_all(store, deadly={0}) == [0]
    (one,) = lease(store, limit=1)
    store.settle([succeeded(one)])
    assert store.retry_flow(flow, [only(store, flow, 0).id])
    old, new = jobs_of(store, flow, 1)[:3], jobs_of(store, flow, 1)[3:]
    assert [job.reason for job in old] == [None, RETRIED, RETRIED]
    assert [job.replays for job in new] == [job.id for job in old]
    assert run_to_end(store) == [[0], [1] * 3]
    assert end(store, flow) == "succeeded"
    assert len(store.step_results(flow, [1], 0, 10)) == 3


def test_in_a_step_that_has_not_ended_it_runs_beside_the_others(store):
    flow = store_flow(store, step(0), step(1, 0), members={0: 2})
    first, second = lease(store)
    store.settle([died(first)])
    assert store.retry_flow(flow, [first.id])
    store.settle([succeeded(second)])
    assert run_to_end(store) == [[0], [1]]
    assert end(store, flow) == "succeeded"


def test_a_paused_flow_stays_paused(store):
    flow = store_flow(store, step(0), step(1), failure=Failure.CONTINUE)
    leases = begun(store)
    store.settle([died(leases[0])])
    store.fold()
    assert store.pause_flow(flow)
    assert store.retry_flow(flow, [leases[0].id])
    assert lease(store) == ()
    assert state(store, flow) == "paused"
    assert store.resume_flow(flow)
    assert settle_all(store) == [0]


def test_what_has_not_failed_is_not_retried(store):
    """And says why; nothing of what was asked for is done."""
    hook = NewStep(number=4, name="told", hook=Hook.FAILURE)
    flow = store_flow(
        store,
        *(step(0), step(1), step(2, 0), step(3, 1), hook),
        failure=Failure.CONTINUE,
    )
    other = store_flow(store, step(0))
    assert run_to_end(store, deadly={0, 4}) == [[0, 0, 1], [3], [4]]
    assert end(store, flow) == "failed"
    assert store.retry_flow(flow, [only(store, flow, 0).id])
    assert run_to_end(store, deadly={0, 4}) == [[0], [4]]
    assert end(store, flow) == "failed"
    failed = only(store, flow, 0).id
    skipped, *_ = jobs_of(store, flow, 2)
    _, newest = jobs_of(store, flow, 2)
    hooked = jobs_of(store, flow, 4)[-1]
    for job_id, why in (
        (only(store, flow, 1).id, "succeeded: only jobs"),
        (skipped.id, f"job {newest.id} has replaced"),
        (newest.id, "whose step has not begun: retry what"),
        (hooked.id, f"`jobpool retry {hooked.id}` runs it again"),
        (only(store, other, 0).id, "no job of it"),
        (10**30, "no job of it"),
    ):
        with pytest.raises(UsageError, match=rf"{why}.*; nothing was changed"):
            store.retry_flow(flow, [failed, job_id])
    assert state(store, flow) == "failed"
    assert only(store, flow, 0).state is JobState.DEAD


def test_a_job_whose_step_has_not_begun_is_taken_back_otherwise(store):
    """Somebody has canceled it; there is nothing after it yet."""
    flow = store_flow(store, step(0), step(1, 0))
    waiting = only(store, flow, 1).id
    store.cancel([waiting])
    with pytest.raises(UsageError, match=rf"jobpool retry {waiting}` takes it back"):
        store.retry_flow(flow, [waiting])


def test_a_flow_that_is_being_canceled_is_not_retried(store):
    flow = store_flow(store, step(0), step(1), failure=Failure.CONTINUE)
    leases = begun(store)
    store.settle([died(leases[0])])
    store.fold()
    store.cancel_flow(flow)
    with pytest.raises(UsageError, match="being canceled: wait until it has ended"):
        store.retry_flow(flow, [leases[0].id])
    store.settle([succeeded(leases[1])])
    assert end(store, flow) == "canceled"
    assert store.retry_flow(flow, [leases[0].id])
    assert run_to_end(store) == [[0]]
    assert end(store, flow) == "succeeded"


def test_of_more_than_one_transaction_should_hold_nothing_begins_anew(
    store, monkeypatch
):
    """What failed and what comes after it is counted; the rest of a flow is not."""
    for module in (retry, in_memory):
        monkeypatch.setattr(module, "RETRIED_MAX", 4)
    flow = store_flow(store, step(0), step(1), step(2, 1), members={0: 9, 1: 3, 2: 3})
    assert run_to_end(store, deadly={1}) == [[0] * 9 + [1] * 3]
    assert end(store, flow) == "failed"
    with pytest.raises(UsageError, match=r"more than .* of its jobs .* Nothing was"):
        store.retry_flow(flow)
    assert state(store, flow) == "failed"
    assert unfinished(store, flow) == []
    first, *_ = jobs_of(store, flow, 1)
    assert store.retry_flow(flow, [first.id])
    assert settle_all(store) == [1]


def test_a_replay_of_what_failed_goes_on_like_that_job(store):
    """It has taken its place."""
    flow = store_flow(store, step(0), step(1, 0), members={0: 2})
    first, second = lease(store)
    store.settle([died(first)])
    (made,) = store.replay([Replay(job_id=first.id, new=new_job())])
    store.settle([died(lease_one(store)), succeeded(second)])
    assert end(store, flow) == "failed"
    assert store.retry_flow(flow, [made])
    assert run_to_end(store) == [[0], [1]]
    assert end(store, flow) == "succeeded"
