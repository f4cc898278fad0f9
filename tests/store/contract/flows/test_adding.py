"""A member that succeeds may add others to its own step."""

import msgspec
import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import UsageError
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.operating import Replay
from support.store.flows import (
    jobs_of,
    run_to_end,
    settle_all,
    state,
    states,
    step,
    store_flow,
    unfinished,
)
from support.store.storing import (
    ended,
    lease,
    lease_one,
    new_job,
    succeeded,
)


def adding(settlement, count=1, **options):
    """Return a settlement that adds jobs."""
    added = tuple(new_job(payload=b'{"n":%d}' % n, **options) for n in range(count))
    return msgspec.structs.replace(settlement, added=added)


def test_what_waits_for_a_step_waits_for_what_is_added_to_it(store):
    """It begins after the last of them, and has the results of all, in order."""
    flow = store_flow(store, step(0), step(1, 0))
    store.settle([adding(succeeded(lease_one(store), result=b"0"), 2)])
    leases = lease(store)
    assert [one.payload for one in leases] == [b'{"n":0}', b'{"n":1}']
    assert [store.flow_of(one.id).number for one in leases] == [0, 0]
    store.settle([succeeded(leases[1], result=b"2")])
    assert lease(store) == ()
    assert states(store, flow) == ["ready", "closed"]
    store.settle([adding(succeeded(leases[0], result=b"1"))])
    store.settle([succeeded(lease_one(store), result=b"3")])
    assert [store.flow_of(one.id).number for one in lease(store)] == [1]
    results = store.step_results(flow, [0], 0, 10)
    assert [row.result for row in results] == [b"0", b"1", b"2", b"3"]


def test_a_settlement_that_is_repeated_adds_nothing_twice(store):
    flow = store_flow(store, step(0))
    settlement = adding(succeeded(lease_one(store)), 3)
    assert store.settle([settlement, settlement]) == [Receipt.ACCEPTED, Receipt.STALE]
    assert store.settle([settlement]) == [Receipt.STALE]
    assert len(jobs_of(store, flow, 0)) == 1 + 3


@pytest.mark.parametrize(
    ("outcome", "more"),
    [
        (Outcome.FAILED, {}),
        (Outcome.FAILED, {"give_up": True}),
        (Outcome.TIMED_OUT, {}),
    ],
)
def test_only_a_success_adds(store, outcome, more):
    """Another attempt begins anew; a job that is dead has added nothing."""
    flow = store_flow(store, step(0))
    store.settle([adding(ended(lease_one(store), outcome, **more))])
    assert len(jobs_of(store, flow, 0)) == 1


@pytest.mark.parametrize("count", [1, 2500])
def test_one_attempt_adds_many_and_each_of_them_can(store, count):
    flow = store_flow(store, step(0), step(1, 0))
    store.settle([adding(succeeded(lease_one(store)), count)])
    first = lease_one(store)
    store.settle([adding(succeeded(first))])
    assert run_to_end(store)[-1] == [1]
    store.fold()
    assert state(store, flow) == "succeeded"
    assert len(jobs_of(store, flow, 0)) == 1 + count + 1


def test_added_to_a_canceled_flow_they_are_canceled(store):
    flow = store_flow(store, step(0), step(1, 0))
    first = lease_one(store)
    store.cancel_flow(flow)
    store.fold()
    store.settle([adding(succeeded(first), 2)])
    assert lease(store) == ()
    ends = [job.state for job in jobs_of(store, flow, 0)]
    assert ends == [JobState.SUCCEEDED, JobState.CANCELED, JobState.CANCELED]
    store.fold()
    assert state(store, flow) == "canceled"
    assert unfinished(store, flow) == []


def test_added_to_a_paused_flow_they_begin_when_it_goes_on(store):
    flow = store_flow(store, step(0), step(1, 0))
    first = lease_one(store)
    store.pause_flow(flow)
    store.settle([adding(succeeded(first))])
    assert lease(store) == ()
    assert unfinished(store, flow) == [JobState.WAITING] * 2
    store.resume_flow(flow)
    assert run_to_end(store) == [[0], [1]]


def test_their_delay_counts_from_when_they_were_added(store, clock):
    store_flow(store, step(0))
    clock.advance(60)
    store.settle([adding(succeeded(lease_one(store)), delay_ms=5000)])
    assert lease(store) == ()
    clock.advance(4)
    assert lease(store) == ()
    clock.advance(2)
    assert settle_all(store) == [0]


def test_a_job_that_is_no_member_any_more_adds_jobs_of_their_own(store):
    """As after a repair of its row: what was promised is not lost."""
    store.enqueue([new_job()])
    store.settle([adding(succeeded(lease_one(store)), 2)])
    leases = lease(store)
    assert [one.payload for one in leases] == [b'{"n":0}', b'{"n":1}']
    assert [one.step for one in leases] == [None, None]


@pytest.mark.parametrize("option", [{"key": "k"}, {"unique": "u"}, {"run_at_ms": 1}])
def test_what_cannot_be_a_member_is_not_added(store, option):
    """A supervisor refuses it before: nothing else could be settled with it."""
    flow = store_flow(store, step(0))
    settlement = adding(succeeded(lease_one(store)), **option)
    with pytest.raises(UsageError, match="nothing was added"):
        store.settle([settlement])
    assert len(jobs_of(store, flow, 0)) == 1


def test_a_job_that_has_added_others_is_not_replayed(store):
    """They would be there twice. Others of its step are, and what it has added."""
    flow = store_flow(store, step(0), step(1, 0), members={0: 2})
    adder, other = lease(store)
    store.settle([adding(succeeded(adder), 2), succeeded(other)])
    added = lease_one(store)
    store.settle([succeeded(added)])
    wanted = [adder.id, other.id, added.id]
    made = store.replay([Replay(job_id=one, new=new_job()) for one in wanted])
    assert [one is not None for one in made] == [False, True, True]
    assert run_to_end(store) == [[0] * 3, [1]]
    assert len(store.step_results(flow, [0], 0, 10)) == 4
