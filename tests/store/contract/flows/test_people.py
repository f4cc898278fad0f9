"""People cancel, pause, resume and approve; nothing of a flow is left behind."""

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.flow import Hook, NewStep, When
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import UsageError
from jobpool.store.records.flows import FlowFilter
from jobpool.store.records.operating import Filter, Replay
from support.store.flows import (
    died,
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

CLEAN = NewStep(number=3, name="clean", hook=Hook.FAILURE)
THANK = NewStep(number=4, name="thank", hook=Hook.SUCCESS)


def test_a_canceled_flow_ends_and_calls_its_hooks(store):
    """What runs is asked to stop; what has not begun does not."""
    flow = store_flow(store, step(0), step(1), step(2, 0), CLEAN, THANK)
    first = lease_one(store)
    assert store.cancel_flow(flow)
    assert not store.cancel_flow(flow)
    assert lease(store) == ()
    assert only(store, flow, 0).cancel_requested
    assert only(store, flow, 1).reason == "its flow was canceled"
    assert states(store, flow) == ["ready", "done", "skipped", "closed", "closed"]
    store.settle([ended(first, Outcome.CANCELED)])
    assert run_to_end(store) == [[3]]
    store.fold()
    assert state(store, flow) == "canceled"
    assert unfinished(store, flow) == []


def test_nothing_is_canceled_once_only_hooks_are_left(store):
    """How the flow ends is known by then; nor is one canceled that there is not."""
    flow = store_flow(store, step(0), step(1, 0), step(2), CLEAN, THANK)
    assert [settle_all(store) for _ in range(2)] == [[0, 2], [1]]
    store.fold()
    assert not store.cancel_flow(flow)
    assert settle_all(store) == [4]
    store.fold()
    assert state(store, flow) == "succeeded"
    assert not store.cancel_flow(flow)
    assert not store.cancel_flow(10**30)


def test_of_a_paused_flow_nothing_begins(store):
    """What runs goes on, and what follows from its end waits."""
    flow = store_flow(store, step(0), step(1), step(2, 0))
    first = lease_one(store)
    assert store.pause_flow(flow)
    assert not store.pause_flow(flow)
    store.settle([succeeded(first)])
    assert lease(store) == ()
    assert state(store, flow) == "paused"
    assert unfinished(store, flow) == [JobState.WAITING] * 2
    assert store.resume_flow(flow)
    assert not store.resume_flow(flow)
    assert run_to_end(store) == [[1, 2]]
    store.fold()
    assert state(store, flow) == "succeeded"


def test_clocks_stand_still_while_a_flow_is_paused(store, clock):
    """A delay goes on from where it was, and so does the time until it expires."""
    options = {"delay_ms": 5000, "expires_in_ms": 20_000}
    flow = store_flow(store, step(0), step(1, 0), job=options)
    clock.advance(3)
    assert store.pause_flow(flow)
    clock.advance(1000)
    assert store.resume_flow(flow)
    assert settle_all(store) == []
    job = only(store, flow, 0)
    assert job.run_at_ms == clock.utc_ms() + 2000
    assert job.expires_at_ms == clock.utc_ms() + 17_000
    clock.advance(2)
    assert settle_all(store) == [0]


def test_a_paused_flow_can_be_canceled(store):
    """It does not have to be resumed for its hooks."""
    flow = store_flow(store, step(0), step(1, 0), step(2), CLEAN)
    assert store.pause_flow(flow)
    assert store.cancel_flow(flow)
    assert run_to_end(store) == [[3]]
    store.fold()
    assert state(store, flow) == "canceled"


def external(store, timeout_ms=None, **more):
    """Store a flow in which somebody approves between two steps; return its id."""
    return store_flow(
        store,
        step(0),
        step(1, 0, external=True, timeout_ms=timeout_ms),
        step(2, 1),
        step(3, 1, when=When.FAILED),
        **more,
    )


def test_an_external_step_ends_when_it_is_approved(store):
    """Not before it is ready, and once; no supervisor gets its job."""
    flow = external(store)
    job_id = only(store, flow, 1).id
    with pytest.raises(UsageError, match="cannot be approved yet"):
        store.approve(job_id, b"1")
    assert run_to_end(store) == [[0]]
    assert only(store, flow, 1).state is JobState.WAITING
    assert store.approve(job_id, b'{"sum":1}')
    assert not store.approve(job_id, b"2")
    assert store.get(job_id).result == b'{"sum":1}'
    assert [one.result for one in store.step_results(flow, [1])] == [b'{"sum":1}']
    assert run_to_end(store) == [[2]]
    store.fold()
    assert state(store, flow) == "succeeded"


def test_steps_that_wait_for_somebody_are_listed(store, clock):
    """Once they are ready, until somebody has decided; not of a flow that is paused."""
    later = external(store)
    assert store.asks() == []
    settle_all(store)
    store.fold()
    soon = external(store, timeout_ms=60_000)
    settle_all(store)
    store.fold()
    first, second = store.asks()
    (row,) = store.flows(FlowFilter(ids=(later,)))
    assert first == (later, row.name, 1, first.name, None, row.ref)
    assert (second.flow, second.until_ms - clock.utc_ms()) == (soon, 60_000)
    assert store.asks(limit=1) == [first]
    store.approve(only(store, later, 1).id, b"1")
    assert [one.flow for one in store.asks()] == [soon]
    store.pause_flow(soon)
    assert store.asks() == []


def test_only_the_job_of_an_external_step_can_be_approved(store):
    """No other member, no plain job, and none that there is not."""
    flow = external(store)
    (plain,) = store.enqueue([new_job()])
    for job_id in (only(store, flow, 0).id, plain.id, 10**30):
        with pytest.raises(UsageError, match="external"):
            store.approve(job_id, b"1")


def test_what_nobody_approves_in_time_has_failed(store, clock):
    """The time counts from when the step is ready."""
    flow = external(store, timeout_ms=60_000)
    clock.advance(600)
    assert settle_all(store) == [0]
    store.fold()
    assert store.flow(flow).steps[1].until_ms == clock.utc_ms() + 60_000
    clock.advance(59)
    assert settle_all(store) == []
    clock.advance(1)
    assert settle_all(store) == [3]
    assert only(store, flow, 1).reason.startswith("nobody approved it")
    assert not store.approve(only(store, flow, 1).id, b"1")
    store.fold()
    assert state(store, flow) == "failed"


def test_the_job_of_an_external_step_never_runs(store, clock):
    """Neither a retry nor a replay makes it runnable: no handler is for it."""
    flow = external(store, timeout_ms=60_000)
    assert settle_all(store) == [0]
    store.fold()
    clock.advance(60)
    store.fold()
    job = only(store, flow, 1)
    assert job.state is JobState.CANCELED
    assert store.revive([job.id], [JobState.CANCELED]) == 0
    assert store.replay([Replay(job_id=job.id, new=new_job())]) == [None]
    assert only(store, flow, 1).state is JobState.CANCELED
    assert settle_all(store) == [3]


def test_a_member_that_was_revived_counts_until_its_step_has_ended(store):
    """Its step waits for it again, and its success is the step's."""
    flow = store_flow(store, step(0), step(1, 0), members={0: 2})
    first, second = lease(store)
    store.settle([died(first)])
    store.fold()
    assert store.revive([first.id], [JobState.DEAD]) == 1
    store.settle([succeeded(second)])
    assert run_to_end(store) == [[0], [1]]
    store.fold()
    assert state(store, flow) == "succeeded"


def test_a_replay_takes_the_place_of_its_member(store):
    """The step waits for it, and the end of the one before it does not count."""
    flow = store_flow(store, step(0), step(1, 0), members={0: 2})
    first, second = lease(store)
    store.settle([died(first)])
    (again,) = store.replay([Replay(job_id=first.id, new=new_job())])
    assert store.flow_of(again) == store.flow_of(first.id)
    store.settle([succeeded(second)])
    assert run_to_end(store) == [[0], [1]]
    store.fold()
    assert state(store, flow) == "succeeded"


def test_whom_a_flow_was_for_is_erased_at_its_end(store):
    """If a job of it was erased before that; else with one that is erased later."""
    flow = store_flow(store, step(0), step(1, 0), key="ann@example.org", tenant="ann")
    other = store_flow(store, step(0), step(1, 0), key="bo@example.org", tenant="bo")
    assert settle_all(store) == [0, 0]
    assert store.erase([only(store, flow, 0).id, only(store, flow, 1).id]) == 1
    assert store_flow(store, step(0), key="ann@example.org") == flow
    assert run_to_end(store) == [[1, 1]]
    store.fold()
    row = store.flow(flow).row
    assert (row.state, row.key, row.tenant) == ("succeeded", None, None)
    row = store.flow(other).row
    assert (row.key, row.tenant) == ("bo@example.org", "bo")
    assert store.erase([only(store, other, 1).id]) == 1
    row = store.flow(other).row
    assert (row.key, row.tenant) == (None, None)


def test_whom_a_flow_was_for_is_erased_with_its_jobs(store):
    """Not before the last of them has ended: its key says which flow it is."""
    flow = store_flow(store, step(0), step(1, 0), key="ann@example.org", tenant="ann")
    assert settle_all(store) == [0]
    first = only(store, flow, 0).id
    assert store.erase([first]) == 1
    assert store.flow(flow).row.key == "ann@example.org"
    assert run_to_end(store) == [[1]]
    assert store.erase([only(store, flow, 1).id]) == 1
    row = store.flow(flow).row
    assert (row.key, row.tenant) == (None, None)
    again = store_flow(store, step(0), key="ann@example.org")
    assert again != flow
    assert store.erase([first]) == 1
    assert store.flow(again).row.key == "ann@example.org"


@pytest.mark.parametrize("kept", [{"succeeded_s": 1.0}, {"succeeded_count": 1}])
@pytest.mark.parametrize("is_over", [False, True])
def test_what_can_be_pruned_is_what_is_pruned(store, clock, kept, is_over):
    """Members count only with their whole flow, and by its age."""
    store_flow(store, step(0), step(1, 0))
    store.enqueue([new_job(), new_job()])
    end_all(store)
    store.fold()
    if is_over:
        end_all(store)
        store.fold()
    clock.advance(2000)
    store.enqueue([new_job()])
    end_all(store)
    keep = Retention(succeeded_s=None, dead_s=None, canceled_s=None)
    keep = msgspec.structs.replace(keep, **kept)
    expected = 2 + 2 * (is_over and "succeeded_s" in kept)
    assert store.prunable(keep) == expected
    assert store.prune(keep) == expected
    assert store.prunable(keep) == 0


def end_all(store):
    """Let all that may begin succeed."""
    store.settle([succeeded(one) for one in lease(store, limit=1000)])


def test_flows_are_pruned_whole(store, clock):
    """A member stays for as long as its flow does."""
    flow = store_flow(store, step(0), step(1, 0))
    assert settle_all(store) == [0]
    clock.advance(10_000)
    keep = Retention(succeeded_s=1000.0, succeeded_count=0)
    assert store.prune(keep) == 0
    assert run_to_end(store) == [[1]]
    store.fold()
    clock.advance(900)
    assert store.prune(keep) == 0
    assert state(store, flow) == "succeeded"
    clock.advance(200)
    store.prune(keep)
    assert store.flow(flow) is None
    assert store.count(Filter()) == 0
