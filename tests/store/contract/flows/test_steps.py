"""Flows go on from step to step, and end, whatever becomes of their members."""

import pytest

from jobpool.core.jobs.flow import Failure, Hook, NewFlow, NewStep, When
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import UsageError
from support.store.flows import (
    jobs_of,
    member,
    new_flow,
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

FAILED, FINISHED = When.FAILED, When.FINISHED


def test_steps_follow_each_other_and_the_flow_ends(store):
    """One member at a time may begin; at the end nothing is left to do."""
    flow = store_flow(store, step(0), step(1, 0), step(2, 1))
    assert states(store, flow) == ["ready", "closed", "closed"]
    assert run_to_end(store) == [[0], [1], [2]]
    store.fold()
    assert state(store, flow) == "succeeded"
    assert states(store, flow) == ["done"] * 3
    assert store.flow(flow).row.finished_at_ms is not None


def test_a_join_waits_for_all_members_of_all_steps_before_it(store):
    """Not for some, however many there are."""
    flow = store_flow(store, step(0), step(1), step(2, 0, 1), members={0: 5, 1: 3})
    assert settle_all(store, limit=7) == [0] * 5 + [1] * 2
    assert settle_all(store) == [1]
    assert settle_all(store) == [2]
    store.fold()
    assert state(store, flow) == "succeeded"


def test_a_step_without_members_is_done_when_it_is_ready(store):
    """Also one that nobody waits for, and one that everybody does."""
    flow = store_flow(
        store, step(0), step(1, 0), step(2, 1), step(3), members={0: 0, 1: 0, 3: 0}
    )
    assert run_to_end(store) == [[2]]
    store.fold()
    assert state(store, flow) == "succeeded"
    empty = store_flow(store, step(0), step(1, 0), members={0: 0, 1: 0})
    while store.fold().is_short:
        pass
    assert state(store, empty) == "succeeded"


def _dead(store, granted, clock):
    store.settle([ended(granted, Outcome.FAILED, give_up=True)])


def _quarantined(store, granted, clock):
    for _ in range(2):
        store.settle([ended(granted, Outcome.CRASHED)])
        clock.advance(3600)
        granted = lease_one(store)
    store.settle([ended(granted, Outcome.CRASHED)])


def _canceled_while_it_runs(store, granted, clock):
    assert store.cancel([granted.id]) == 1
    store.settle([ended(granted, Outcome.CANCELED)])


def _canceled_for_its_next_attempt(store, granted, clock):
    store.settle([ended(granted, Outcome.FAILED)])
    assert store.cancel([granted.id]) == 1


BAD_ENDS = {
    "dead": _dead,
    "quarantined": _quarantined,
    "canceled as it ran": _canceled_while_it_runs,
    "canceled between attempts": _canceled_for_its_next_attempt,
}


@pytest.mark.parametrize("end", BAD_ENDS.values(), ids=BAD_ENDS)
def test_each_bad_end_leads_to_what_waits_for_a_failure(store, clock, end):
    """What waits for success is skipped; the flow has failed at its end."""
    flow = store_flow(store, step(0), step(1, 0), step(2, 0, when=FAILED))
    end(store, lease_one(store), clock)
    assert run_to_end(store) == [[2]]
    store.fold()
    assert state(store, flow) == "failed"
    assert states(store, flow) == ["done", "skipped", "done"]
    assert only(store, flow, 1).state is JobState.CANCELED
    assert only(store, flow, 1).reason == "a step before it has failed"


def test_what_has_expired_has_failed(store, clock):
    """Its time counts from when its step is ready, not from when it was stored."""
    flow = store_flow(
        store, step(0), step(1, 0), step(2, 1, when=FAILED), job={"expires_in_ms": 9000}
    )
    granted = lease_one(store)
    clock.advance(60)
    store.settle([succeeded(granted)])
    store.fold()
    assert only(store, flow, 1).expires_at_ms == clock.utc_ms() + 9000
    clock.advance(10)
    (compensation,) = lease(store) or lease(store)
    assert only(store, flow, 1).state is JobState.CANCELED
    assert compensation.id == only(store, flow, 2).id


def test_a_delay_counts_from_when_the_step_is_ready(store, clock):
    """A member that is opened is pending until then."""
    flow = store_flow(store, step(0), step(1, 0), job={"delay_ms": 5000})
    assert only(store, flow, 0).state is JobState.PENDING
    clock.advance(5)
    assert settle_all(store) == [0]
    clock.advance(100)
    assert settle_all(store) == []
    assert only(store, flow, 1).state is JobState.PENDING
    clock.advance(5)
    assert settle_all(store) == [1]


def test_a_failure_ends_what_has_not_begun(store):
    """What runs goes on to its end, and nothing begins after it."""
    flow = store_flow(
        store, step(0), step(1), step(2, 1), step(3), members={1: 2, 3: 1}
    )
    first, second = lease(store, limit=2)
    assert [store.flow_of(one.id).number for one in (first, second)] == [0, 1]
    store.settle([ended(first, Outcome.FAILED, give_up=True)])
    assert lease(store) == ()
    assert states(store, flow) == ["done", "ready", "skipped", "done"]
    assert [job.state for job in jobs_of(store, flow, 1)] == ["leased", "canceled"]
    assert only(store, flow, 3).reason == "another step of its flow has failed"
    store.settle([succeeded(second)])
    store.fold()
    assert state(store, flow) == "failed"
    assert unfinished(store, flow) == []


def test_a_flow_may_go_on_after_a_failure(store):
    """Other branches end; the flow has failed nevertheless."""
    flow = store_flow(
        store, step(0), step(1), step(2, 1), step(3, 0), failure=Failure.CONTINUE
    )
    assert run_to_end(store, deadly={0}) == [[0, 1], [2]]
    store.fold()
    assert state(store, flow) == "failed"
    assert states(store, flow) == ["done", "done", "done", "skipped"]


def test_a_refund_that_is_not_needed_is_no_failure(store):
    """Neither is what would follow it."""
    flow = store_flow(store, step(0), step(1, 0, when=FAILED), step(2, 1))
    assert run_to_end(store) == [[0]]
    store.fold()
    assert state(store, flow) == "succeeded"
    assert states(store, flow) == ["done", "skipped", "skipped"]
    assert only(store, flow, 2).reason == (
        "the steps before it have ended such that it is not needed"
    )


def test_finished_holds_at_any_end(store):
    """After success, failure, and after one that was skipped."""
    flow = store_flow(store, step(0), step(1, 0), step(2, (0, FINISHED), (1, FINISHED)))
    assert run_to_end(store, deadly={0}) == [[0], [2]]
    store.fold()
    assert state(store, flow) == "failed"


HOOKS = [
    NewStep(number=1, name="yes", hook=Hook.SUCCESS),
    NewStep(number=2, name="no", hook=Hook.FAILURE),
    NewStep(number=3, name="ever", hook=Hook.FINISH),
]


@pytest.mark.parametrize(
    ("deadly", "begin", "end"),
    [((), [1, 3], "succeeded"), ({0}, [2, 3], "failed"), ({3}, [1, 3], "succeeded")],
    ids=["succeeded", "failed", "hook failed"],
)
def test_hooks_begin_once_all_steps_have_ended(store, deadly, begin, end):
    """Those that fit; their own end does not change the flow's."""
    flow = store_flow(store, step(0), *HOOKS)
    assert run_to_end(store, deadly) == [[0], begin]
    store.fold()
    assert state(store, flow) == end
    assert unfinished(store, flow) == []


def test_a_fold_is_bounded_and_says_that_more_is_to_do(store):
    """Steps and members count; what was opened so far may begin."""
    flow = store_flow(store, step(0), step(1, 0), members={1: 10})
    store.settle([succeeded(lease_one(store))])
    folded = store.fold(4)
    assert folded.is_short
    assert folded.opened == {"cpu"}
    opened = [job.state for job in jobs_of(store, flow, 1)].count(JobState.RUNNABLE)
    assert 0 < opened < 5
    calls = 1
    while folded.is_short:
        folded = store.fold(4)
        calls += 1
    assert 3 <= calls < 10
    assert unfinished(store, flow) == [JobState.RUNNABLE] * 10


def test_a_look_too_many_changes_nothing(store):
    """Nothing is noted, and nothing follows."""
    flow = store_flow(store, step(0), step(1, 0))
    before = store.flow(flow)
    assert store.fold() == store.fold()
    assert not store.fold().opened
    assert store.flow(flow) == before


def test_the_same_key_is_the_same_flow(store):
    """Another name is another one; its members are stored once."""
    first = store.enqueue_flow(new_flow(step(0), key="a"), [member(0)])
    again = store.enqueue_flow(new_flow(step(0), key="a"), [member(0)])
    other = store.enqueue_flow(new_flow(step(0), key="a", name="b"), [member(0)])
    assert first.created
    assert not again.created
    assert (again.id, again.ref, again.state) == (first.id, first.ref, first.state)
    assert other.created
    assert len(lease(store)) == 2


REFUSED = {
    "circle": (new_flow(step(0, 1), step(1, 0)), [], "wait for each other"),
    "no step": (NewFlow(name="order", steps=()), [], "no steps"),
    "other step": (new_flow(step(0)), [member(1)], "does not have"),
    "key": (new_flow(step(0)), [(0, new_job(key="a"))], "no key="),
    "unique": (new_flow(step(0)), [(0, new_job(unique="a"))], "no unique="),
    "time": (new_flow(step(0)), [(0, new_job(run_at_ms=5))], "absolute"),
    "external": (new_flow(step(0, external=True)), [], "one member"),
    "job": (new_flow(step(0)), [(0, new_job(priority=2**40))], "priority"),
    "text": (new_flow(step(0), tenant="a\0"), [], "tenant"),
}


@pytest.mark.parametrize(("flow", "members", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_stored_is_refused_whole(store, flow, members, words):
    """Nothing of it is there afterwards."""
    jobs = store.position().last_id
    with pytest.raises(UsageError, match=words):
        store.enqueue_flow(flow, members)
    assert store.position().last_id == jobs
    assert store.flow(1) is None


def test_results_are_those_of_members_that_succeeded(store):
    """In order of adding, however they ended."""
    flow = store_flow(store, step(0), step(1, (0, FINISHED)), members={0: 3})
    first, second, third = lease(store)
    ends = [
        succeeded(third, b"3"),
        ended(second, give_up=True),
        succeeded(first, b"1"),
    ]
    store.settle(ends)
    found = store.step_results(flow, [0])
    assert [(one.job_id, one.result) for one in found] == [
        (first.id, b"1"),
        (third.id, b"3"),
    ]
    assert store.flow_of(only(store, flow, 1).id).before == (0,)


@pytest.mark.parametrize("first", ["first", "last"])
def test_a_wide_join_waits_for_its_last_step_and_for_nobody_elses(store, first):
    """Whichever ends last, and however many other steps have not ended."""
    others = [step(number) for number in range(10)]
    before = range(10, 30)
    flow = store_flow(
        store,
        *others,
        *map(step, before),
        step(30, *before),
        members=dict.fromkeys(range(10), 1),
    )
    waiting = lease(store)
    mine = waiting[10:] if first == "first" else waiting[:9:-1]
    for granted in mine[:-1]:
        store.settle([succeeded(granted)])
        store.fold()
        assert states(store, flow)[30] == "closed"
    store.settle([succeeded(mine[-1])])
    store.fold()
    assert states(store, flow)[30] == "ready"
    assert states(store, flow)[:10] == ["ready"] * 10
