"""The trace context of a job: kept, leased with it, and passed on to a replay."""

import itertools

import msgspec
import pytest

from jobpool.core.jobs.job import Debounce, OnConflict
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.policy import Policy
from jobpool.errors import UsageError
from jobpool.store.records.operating import Filter, Replay
from support.store.flows import member, new_flow, run_to_end, step
from support.store.quotas import publish, quota
from support.store.storing import begin_run, ended, lease, lease_one, new_job

TRACE = f"00-{'a' * 32}-{'b' * 16}-01 vendor=1"
OTHER = f"00-{'c' * 32}-{'d' * 16}-00"


def traced(**options):
    """Make a job that was enqueued in a trace."""
    return new_job(**{"trace": TRACE, **options})


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("traces", [[TRACE], [TRACE, OTHER], [None, TRACE]])
def test_a_job_is_leased_with_its_trace(store, count, traces):
    """One by one, many that are alike, and many that are not."""
    wanted = list(itertools.islice(itertools.cycle(traces), count))
    store.enqueue([traced(trace=trace) for trace in wanted])
    begin_run(store)
    assert [one.trace for one in lease(store, limit=count)] == wanted
    assert [one.trace for one in store.leases_of("run-1")] == wanted
    assert [store.trace(job_id) for job_id in range(1, count + 2)] == [*wanted, None]


def test_a_retry_and_a_suspect_are_in_the_trace_of_their_job(store):
    store.enqueue([traced()])
    begin_run(store)
    (held,) = lease(store)
    lost = msgspec.structs.replace(ended(held, Outcome.LOST), suspect=True)
    store.settle([lost])
    (again,) = lease(store)
    assert (again.suspect, again.trace) == (True, TRACE)


def test_a_job_of_a_quota_is_leased_with_its_trace(store):
    publish(store, quota(concurrency=1))
    store.enqueue([traced(), traced(trace=OTHER)])
    assert [(one.laned, one.trace) for one in lease(store, limit=2)] == [(True, TRACE)]


def test_who_gives_a_job_other_arguments_gives_it_the_trace(store):
    shared = {"unique": "u", "debounce": Debounce(OnConflict.REPLACE)}
    store.enqueue([traced(**shared)])
    (again,) = store.enqueue([traced(trace=OTHER, **shared)])
    assert again.replaced
    assert lease_one(store).trace == OTHER


def test_a_replay_goes_on_in_the_trace_of_the_job_that_it_replaces(store):
    (stored,) = store.enqueue([traced()])
    store.settle([ended(lease_one(store), policy=Policy(max_attempts=1))])
    store.replay([Replay(job_id=stored.id, new=new_job())])
    assert lease_one(store).trace == TRACE


def test_members_of_a_flow_have_the_trace_in_which_it_was_enqueued(store):
    """Those too that were left out after a failure, once the flow is retried."""
    members = [member(number, trace=TRACE) for number in (0, 1)]
    flow = store.enqueue_flow(new_flow(step(0), step(1, 0)), members).id
    run_to_end(store, deadly={0})
    store.fold()
    assert store.retry_flow(flow)
    assert lease_one(store).trace == TRACE
    for one in store.leases_of("run-1"):
        store.settle([ended(one, Outcome.SUCCEEDED)])
    assert lease_one(store).trace == TRACE


@pytest.mark.parametrize(
    "wrong", ["", "00-1-2-01", 7, f"{OTHER} a=\0", f"{OTHER} {'x' * 1000}"]
)
def test_what_is_no_trace_context_is_refused(store, wrong):
    with pytest.raises(UsageError, match="trace"):
        store.enqueue([traced(trace=wrong)])
    assert store.count(Filter()) == 0
