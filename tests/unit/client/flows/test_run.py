"""FlowRun: what a handle reads of its flow, and what it says if that is not there."""

import pickle
from collections.abc import Mapping

import msgspec
import pytest

from jobpool import (
    FlowNotFound,
    FlowUnsuccessful,
    JobErased,
    UsageError,
    WaitTimeout,
)
from jobpool.core.jobs.flow import Failure, FlowState, Hook, StepState, When
from jobpool.core.jobs.job import JobState
from jobpool.store.records.flows import FlowDetail, FlowRow, StepResult, StepRow
from support.store.client_fakes import FlowStore, InTransaction, adder, pool_with

GOOD, DEAD, WAITS = JobState.SUCCEEDED, JobState.DEAD, JobState.WAITING


@pytest.fixture
def store():
    return FlowStore()


@pytest.fixture
def jobs(store):
    return pool_with(store)


@pytest.fixture
def add(jobs):
    return adder(jobs)


@pytest.fixture
def flow(jobs, add):
    """Return the steps of a flow that has been stored, and its handle."""
    flow = jobs.flow("report")
    parts = flow.add_many(add.call(n) for n in range(3))
    total = flow.add(add.call(9), after=parts, name="total")
    flow.on_finish(add.call(0), name="clean")
    return parts, total, flow.enqueue()


def step(number, name, state, jobs: Mapping = {}, *, failed=False, hook=None, after=()):
    return StepRow(
        id=100 + number,
        number=number,
        name=name,
        state=state,
        failed=failed,
        hook=hook,
        external=False,
        timeout_ms=None,
        until_ms=None,
        after=tuple((one, When.SUCCEEDED) for one in after),
        jobs=jobs,
    )


def put(store, state, parts, total, *, failed=(False, False)):
    """Let the store show the flow in a state, its steps in theirs."""
    row = FlowRow(
        id=7,
        name="report",
        key=None,
        tenant=None,
        state=state,
        failure=Failure.FAIL,
        ending=None,
        generation=1,
        created_at_ms=0,
        finished_at_ms=None,
        ref="flow-7-x",
    )
    steps = (
        step(0, "add", *parts, failed=failed[0]),
        step(1, "total", *total, failed=failed[1], after=(0,)),
        step(2, "clean", StepState.CLOSED, {WAITS: 1}, hook=Hook.FINISH),
    )
    store.detail = FlowDetail(row=row, steps=steps)


def succeed(store):
    done = StepState.DONE
    put(store, FlowState.SUCCEEDED, (done, {GOOD: 3}), (done, {GOOD: 1}))
    store.results = [StepResult(n, n == 4, "add", b"%d" % n, None) for n in range(1, 5)]


def fail(store):
    put(
        store,
        FlowState.FAILED,
        (StepState.DONE, {GOOD: 1, DEAD: 2}),
        (StepState.SKIPPED, {JobState.CANCELED: 1}),
        failed=(True, True),
    )


def test_progress_counts_jobs_without_those_of_hooks(store, flow):
    *_, run = flow
    put(
        store,
        FlowState.OPEN,
        (StepState.READY, {GOOD: 1, DEAD: 1, JobState.LEASED: 1}),
        (StepState.CLOSED, {WAITS: 1}),
    )
    assert run.progress == (2, 1, 4)
    assert (run.progress.ended, run.progress.failed, run.progress.total) == (2, 1, 4)
    assert run.state is FlowState.OPEN
    assert run.info().steps[1].name == "total"


def test_the_result_of_a_step_is_that_of_its_job_or_the_list_of_theirs(store, flow):
    parts, total, run = flow
    succeed(store)
    assert run.wait() is FlowState.SUCCEEDED
    assert run.result(parts) == [1, 2, 3]
    assert run.result(total) == run.result() == run.result("total") == 4
    assert run.result("add") == [1, 2, 3]


def test_the_result_of_a_step_is_there_before_the_flow_has_ended(store, flow):
    parts, total, run = flow
    succeed(store)
    put(
        store,
        FlowState.OPEN,
        (StepState.DONE, {GOOD: 3}),
        (StepState.READY, {JobState.LEASED: 1}),
    )
    assert run.result(parts, timeout=0) == [1, 2, 3]
    with pytest.raises(
        WaitTimeout, match=r"flow 7 has <Step 1 total> still ready .*x`"
    ):
        run.result(total, timeout=0)
    with pytest.raises(WaitTimeout, match=r"flow 7 is still open after .*unaffected"):
        run.wait(timeout=0)


def test_results_can_be_looped_over_again_and_by_handler(store, jobs, flow):
    *_, run = flow
    succeed(store)
    other = jobs.job("cpu", kind="other")(lambda: None)
    store.results[2] = StepResult(3, 0, "other", None, None)
    everything = run.results()
    seen = [(job.id, job.kind, value) for job, value in everything]
    assert seen == [(1, "add", 1), (2, "add", 2), (3, "other", None), (4, "add", 4)]
    assert [value for _, value in everything] == [1, 2, None, 4]
    (add,) = {h for h in jobs._handlers.values() if h.kind == "add"}
    assert list(run.results(add)) == [1, 2, 4]
    assert list(run.results(other)) == [None]


def test_a_result_that_was_erased_is_not_null(store, flow):
    """Nor is it passed over."""
    parts, total, run = flow
    succeed(store)
    store.results[2:] = [
        one._replace(result=None, is_erased=True) for one in store.results[2:]
    ]
    loop = iter(run.results())
    assert [next(loop)[1], next(loop)[1]] == [1, 2]
    for read in (lambda: run.result(parts), lambda: run.result(total), loop.__next__):
        with pytest.raises(JobErased, match=r"job [34] \(add\) was erased"):
            read()


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        (lambda run, parts, total: run.result(), "has failed"),
        (lambda run, parts, total: run.result(parts), "of add, which has failed"),
        (lambda run, parts, total: run.result(total), "of total, which was skipped"),
    ],
)
def test_a_flow_that_has_failed_says_what_failed(store, flow, asks, said):
    """The steps that did, not those that were skipped because of them."""
    parts, total, run = flow
    fail(store)
    assert run.wait() is FlowState.FAILED
    with pytest.raises(FlowUnsuccessful, match=said) as caught:
        asks(run, parts, total)
    assert str(caught.value).endswith(
        "; failed: add (2 of 3 jobs); see `jobpool flows show flow-7-x`"
    )
    assert (caught.value.flow_id, caught.value.state) == (7, "failed")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.flow_id) == (str(caught.value), 7)


def test_a_flow_with_two_ends_has_no_one_result(store, jobs, flow):
    *_, run = flow
    succeed(store)
    detail = store.detail
    loose = msgspec.structs.replace(detail.steps[1], after=())
    steps = (detail.steps[0], loose, detail.steps[2])
    store.detail = msgspec.structs.replace(detail, steps=steps)
    with pytest.raises(UsageError, match=r"2 steps .* \(add, total\); name one"):
        run.result()


def test_a_step_of_another_flow_is_not_mistaken_for_one_of_this(store, jobs, add, flow):
    *_, run = flow
    succeed(store)
    others = jobs.flow("other")
    for theirs in [others.add(add.call(n), name=f"other {n}") for n in range(4)]:
        with pytest.raises(UsageError, match="is not a step of flow 7"):
            run.result(theirs)
    with pytest.raises(UsageError, match="expected a step"):
        run.result(1)
    for unknown in ("subtotal", ""):
        with pytest.raises(UsageError, match="is not a step of flow 7"):
            run.result(unknown)
    with pytest.raises(UsageError, match="expected a handler"):
        run.results("add")


def test_the_job_of_a_step_is_found_by_the_step_or_its_name(store, flow):
    """With its ref, by which others approve it, for one."""
    parts, total, run = flow
    succeed(store)
    store.put(104, GOOD, kind="add", result=b"4")
    detail = store.detail
    found = msgspec.structs.replace(detail.steps[1], first_job=104)
    steps = (detail.steps[0], found, detail.steps[2])
    store.detail = msgspec.structs.replace(detail, steps=steps)
    for meant in (total, "total"):
        job = run.job(meant)
        assert (job.id, job.kind, job.result()) == (104, "add", 4)
    with pytest.raises(UsageError, match="has 3 jobs"):
        run.job(parts)


def test_a_flow_is_found_by_its_ref_or_its_id(store, jobs, flow):
    *_, run = flow
    succeed(store)
    assert jobs.get_flow("flow-7-x") == jobs.get_flow(7) == run
    assert jobs.get_flow(7).ref == "flow-7-x"
    for wrong in (8, "flow-8-x"):
        with pytest.raises(FlowNotFound, match="no flow has this"):
            jobs.get_flow(wrong)
    for wrong in (True, b"7", None):
        with pytest.raises(UsageError, match="expected the ref"):
            jobs.get_flow(wrong)


def test_a_flow_that_was_pruned_is_said_to_be_gone(flow):
    *_, run = flow
    for ask in (lambda: run.state, run.info, run.wait, lambda: run.progress):
        with pytest.raises(FlowNotFound, match="flow 7 is gone"):
            ask()


def test_nobody_waits_for_a_flow_within_a_transaction(store, jobs, flow):
    """It would wait for what it holds up itself."""
    parts, _, run = flow
    with jobs.transaction(InTransaction()):
        for wait in (run.wait, lambda: run.result(parts)):
            with pytest.raises(UsageError, match="waiting for a flow"):
                wait()
