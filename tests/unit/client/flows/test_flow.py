"""Flows as they are built: what is stored of them, and what is refused."""

import asyncio
import json
import threading

import pytest

from jobpool import ArgumentsRejected, UsageError
from jobpool.core.application.placeholders import MARKER
from jobpool.core.jobs.flow import (
    Failure,
    Hook,
    NewFlow,
    NewStep,
    When,
)
from support.store.client_fakes import FlowStore, InTransaction, adder, pool_with


@pytest.fixture
def store():
    return FlowStore()


@pytest.fixture
def jobs(store):
    return pool_with(store)


@pytest.fixture
def add(jobs):
    return adder(jobs)


def names(members):
    return [(number, json.loads(job.payload)) for number, job in members]


def test_steps_edges_and_members_are_stored_as_declared(store, jobs, add):
    flow = jobs.flow("report", key="k", tenant="acme", failure="continue")
    parts = flow.add_many((add.call(n) for n in range(3)), name="parts")
    total = flow.add(add.call(10), after=parts)
    flow.add(add.call(11), after=[parts, total], when="finished", name="tidy")
    flow.on_success(add.call(12))
    flow.on_failure(add.call(13))
    flow.on_finish(add.call(14), name="end")
    run = flow.enqueue()
    ((stored, members, connection),) = store.made
    assert stored == NewFlow(
        name="report",
        key="k",
        tenant="acme",
        failure=Failure.CONTINUE,
        steps=(
            NewStep(number=0, name="parts"),
            NewStep(number=1, name="add", after=((0, When.SUCCEEDED),)),
            NewStep(
                number=2, name="tidy", after=((0, When.FINISHED), (1, When.FINISHED))
            ),
            NewStep(number=3, name="add", hook=Hook.SUCCESS),
            NewStep(number=4, name="add", hook=Hook.FAILURE),
            NewStep(number=5, name="end", hook=Hook.FINISH),
        ),
    )
    assert names(members) == [
        *((0, {"a": n}) for n in range(3)),
        *((n - 9, {"a": n}) for n in range(10, 15)),
    ]
    assert {job.tenant for _, job in members} == {"acme"}
    assert (connection, store.wakes) == (None, 1)
    assert (run.id, run.ref, run.created) == (7, "flow-7-x", True)


def test_a_value_among_arguments_is_an_edge(store, jobs, add):
    """Also beside others, and inside a list."""
    flow = jobs.flow("sum")
    one, two = flow.add(add.call(1)), flow.add(add.call(2))
    many = flow.add_many([add.call(n) for n in range(2)], after=one)
    flow.add(add.call(one.value, two.value), after=two)

    @jobs.job("cpu", kind="sum")
    def sum_of(numbers: list[int], more: list[int]) -> int:
        return sum(numbers) + sum(more)

    flow.add(sum_of.call(many.value, [one.value, 5]))
    flow.enqueue()
    ((stored, members, _),) = store.made
    assert [step.after for step in stored.steps] == [
        (),
        (),
        ((0, When.SUCCEEDED),),
        ((0, When.SUCCEEDED), (1, When.SUCCEEDED)),
        ((0, When.SUCCEEDED), (2, When.SUCCEEDED)),
    ]
    assert names(members)[-2:] == [
        (3, {"a": {MARKER: 0}, "b": {MARKER: 1}}),
        (4, {"numbers": {MARKER: [2]}, "more": [{MARKER: 0}, 5]}),
    ]


def test_a_chain_hands_each_result_on(store, jobs, add):
    chain = jobs.chain(add.call(1), key="k")
    run = chain.then(add.rest(b=5)).then(add.options(priority=3).rest(7)).enqueue()
    ((stored, members, _),) = store.made
    assert (stored.name, stored.key, run.id) == ("add", "k", 7)
    assert [step.after for step in stored.steps] == [
        (),
        ((0, When.SUCCEEDED),),
        ((1, When.SUCCEEDED),),
    ]
    assert names(members) == [
        (0, {"a": 1}),
        (1, {"a": {MARKER: 0}, "b": 5}),
        (2, {"a": {MARKER: 1}, "b": 7}),
    ]
    assert [job.priority for _, job in members] == [0, 0, 3]


def test_a_chain_that_goes_on_is_not_used_again(jobs, add):
    chain = jobs.chain(add.call(1))
    chain.then(add.rest())
    for use in (chain.enqueue, lambda: chain.then(add.rest())):
        with pytest.raises(UsageError, match=r"use what its then\(\)"):
            use()


def test_a_step_that_waits_has_a_job_that_nobody_runs(store, jobs, add):
    flow = jobs.flow("pay", tenant="acme")
    asked = flow.add(add.call(1))
    approval = flow.wait_for("approval", after=asked, timeout="7d")
    flow.add(add.call(approval.value))
    flow.enqueue()
    ((stored, members, _),) = store.made
    assert stored.steps[1] == NewStep(
        number=1,
        name="approval",
        after=((0, When.SUCCEEDED),),
        external=True,
        timeout_ms=7 * 86_400_000,
    )
    (waiting,) = [job for number, job in members if number == 1]
    assert (waiting.kind, waiting.payload) == ("external.approval", b"{}")
    assert waiting.tenant == "acme"
    assert names(members)[2] == (2, {"a": {MARKER: 1}})


def test_a_generator_is_consumed_when_the_flow_is_stored(store, jobs, add):
    made = []

    def calls():
        for n in range(3):
            made.append(n)
            yield add.call(n)

    flow = jobs.flow("late")
    flow.add_many(calls())
    assert made == []
    flow.enqueue()
    assert made == [0, 1, 2]
    ((stored, members, _),) = store.made
    assert (stored.steps[0].name, len(members)) == ("add", 3)


def test_a_step_may_have_no_jobs(store, jobs, add):
    flow = jobs.flow("empty")
    flow.add(add.call(1), after=flow.add_many([]))
    flow.enqueue()
    ((stored, members, _),) = store.made
    assert [step.name for step in stored.steps] == ["step 0", "add"]
    assert names(members) == [(1, {"a": 1})]


def test_a_flow_joins_the_callers_transaction(store, jobs, add):
    connection = InTransaction()
    flow = jobs.flow("joined")
    flow.add(add.call(1))
    flow.enqueue(connection=connection)
    assert store.made[0][2] is connection
    assert store.wakes == 0


def test_a_jobs_own_tenant_goes_before_the_flows_and_lanes_follow(store, jobs):
    """A quota counts a member like any job of that tenant."""
    vendor = jobs.quota("vendor", concurrency=1, per="tenant")

    @jobs.job("cpu", kind="ship", quotas=[vendor])
    def ship(n: int) -> None:
        """Ship."""

    flow = jobs.flow("ship", tenant="acme")
    flow.add_many([ship.call(1), ship.options(tenant="other").call(1)])
    flow.enqueue()
    same = [ship.options(tenant=t).call(1).job for t in ("acme", "other")]
    assert [job for _, job in store.made[0][1]] == same


def test_a_jobs_own_priority_goes_before_the_flows_and_lanes_follow(store, jobs):
    """Also 0, if its options say so; hooks, values and approvals have the flow's."""
    vendor = jobs.quota("vendor", concurrency=1)

    @jobs.job("cpu", kind="ship", quotas=[vendor])
    def ship(n: int) -> int:
        """Ship."""
        return n

    flow = jobs.flow("ship", priority=-7)
    first = flow.add(ship.call(1))
    flow.add(ship.call(first.value))
    flow.add_many(ship.options(priority=n).call(1) for n in (0, 9))
    flow.wait_for("approval")
    flow.on_finish(ship.call(1))
    flow.enqueue()
    members = [job for _, job in store.made[0][1]]
    assert [job.priority for job in members] == [-7, -7, 0, 9, -7, -7]
    ships = [job for job in members if job.kind == "ship"]
    same = [ship.options(priority=n).call(1).job for n in (-7, -7, 0, 9, -7)]
    assert [job.lane for job in ships] == [job.lane for job in same]
    jobs.chain(ship.call(1), priority=3).then(ship.rest()).enqueue()
    assert [job.priority for _, job in store.made[1][1]] == [3, 3]


@pytest.mark.parametrize("priority", [32768, True, "high"])
def test_a_priority_that_no_job_can_have_is_refused(jobs, priority):
    with pytest.raises(UsageError, match=r"^priority"):
        jobs.flow("f", priority=priority)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "k"}, "the flow has a key"),
        ({"unique": "u"}, "the flow has a key"),
        ({"run_at": 5}, "run_in= counts from then"),
        ({"connection": InTransaction()}, r"flow\.enqueue\(connection="),
    ],
)
def test_options_that_no_member_can_have_are_refused(jobs, add, options, said):
    flow = jobs.flow("f")
    call = add.options(**options).call(1)
    with pytest.raises(UsageError, match=rf"^add: .*{said}.*nothing was stored"):
        flow.add(call)
    with pytest.raises(UsageError, match=rf"^on_finish: .*{said}"):
        flow.on_finish(call)
    flow.add_many([add.call(0), call])
    with pytest.raises(UsageError, match=rf"^add_many: call 1 .*{said}"):
        flow.enqueue()


def wrong(jobs, add):
    """Return wrong uses of flows, with what is said of each."""
    flow, other = jobs.flow("f"), jobs.flow("g")
    step, hook = flow.add(add.call(1)), flow.on_finish(add.call(2))
    theirs = other.add(add.call(1))
    value = add.call(step.value)
    return [
        (lambda: flow.add(add), "expected a call.* got Handler"),
        (lambda: flow.add(value, after=step, when="failed"), "only if it has succeed"),
        (lambda: flow.add(value, when="failed"), "name some"),
        (lambda: flow.add(add.call(1), when="failed"), "name some"),
        (lambda: flow.add(add.call(1), after=step, when="late"), "when: expected one"),
        (lambda: flow.add(add.call(1), after=theirs), "of this flow returned"),
        (lambda: flow.add(add.call(1), after=[step, 5]), "of this flow returned"),
        (lambda: flow.add(add.call(1), after=5), "expected steps of this flow"),
        (lambda: flow.add(add.call(1), after=hook), "is a hook"),
        (lambda: flow.add(add.call(theirs.value)), "a step of another flow"),
        (lambda: flow.add(add.call(1), name="x" * 300), "name: 300 characters"),
        (lambda: flow.add_many(add.call(1)), "a list or generator of calls"),
        (lambda: flow.add_many(5), "a list or generator of calls"),
        (lambda: flow.on_success(value), "no steps before it"),
        (lambda: flow.wait_for("a b"), "^wait_for: "),
        (lambda: flow.wait_for("a", timeout=0), "timeout"),
        (lambda: jobs.flow("f", failure="ignore"), "failure: expected one of 'fail'"),
        (lambda: jobs.flow(""), "name: 0 characters"),
        (lambda: jobs.flow(None), "needs one"),
        (lambda: jobs.flow("f", key=5), "key: expected text"),
        (lambda: jobs.flow("f").enqueue(), "has no steps"),
        (lambda: jobs.chain(add), "chain: expected a call"),
        (lambda: jobs.chain(add.call(1)).then(add.call(1)), "then: expected a call"),
    ]


@pytest.mark.parametrize("index", range(23))
def test_a_flow_that_cannot_work_is_refused_where_it_is_wrong(store, jobs, add, index):
    cases = wrong(jobs, add)
    assert len(cases) == 23
    use, said = cases[index]
    with pytest.raises(UsageError, match=said):
        use()
    assert store.made == []


def test_a_generators_value_must_be_among_the_steps_before(jobs, add):
    """Its calls are made when the edges are stored already."""
    flow = jobs.flow("f")
    one = flow.add(add.call(1), name="one")
    flow.add_many([add.call(one.value)])
    with pytest.raises(UsageError, match=r"call 0 .*value of <Step 0 one>"):
        flow.enqueue()


def test_a_call_that_does_not_fit_is_named_by_the_generators_own_error(jobs, add):
    flow = jobs.flow("f")
    flow.add_many(add.call(n) for n in [1, "x"])
    with pytest.raises(ArgumentsRejected, match="argument 'a'"):
        flow.enqueue()


def test_a_flow_is_stored_once(store, jobs, add):
    flow = jobs.flow("f")
    flow.add(add.call(1))
    flow.enqueue()
    with pytest.raises(UsageError, match="was stored already"):
        flow.enqueue()
    assert len(store.made) == 1


def test_a_flow_that_could_not_be_stored_can_be_tried_again(jobs, add, monkeypatch):
    """Unless its generators are used up."""
    flow, streamed = jobs.flow("f"), jobs.flow("g")
    flow.add_many([add.call(1)])
    streamed.add_many(add.call(n) for n in range(2))
    store = jobs._gateway.store("x")
    with monkeypatch.context() as patch:
        patch.setattr(store, "enqueue_flow", lambda *_args, **_kw: 1 / 0)
        for one in (flow, streamed):
            with pytest.raises(ZeroDivisionError):
                one.enqueue()
    assert flow.enqueue().id == 7
    with pytest.raises(UsageError, match="generators of this flow are used up"):
        streamed.enqueue()


def test_an_asynchronous_enqueue_stores_the_same_in_another_thread(store, jobs, add):
    """Of flows and chains; a second one is refused, as of `enqueue`."""
    consumed_in = []

    def calls():
        consumed_in.append(threading.get_ident())
        yield add.call(1)

    flow = jobs.flow("report")
    flow.add_many(calls())
    run = asyncio.run(flow.enqueue_async())
    chain = jobs.chain(add.call(2))
    asyncio.run(chain.enqueue_async())
    (_, first, _), (_, second, _) = store.made
    assert names(first) == [(0, {"a": 1})]
    assert names(second) == [(0, {"a": 2})]
    assert run.ref == "flow-7-x"
    assert len(consumed_in) == 1
    assert threading.get_ident() not in consumed_in
    with pytest.raises(UsageError, match="was stored already"):
        asyncio.run(flow.enqueue_async())
