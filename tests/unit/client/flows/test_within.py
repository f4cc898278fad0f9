"""Flows within flows as they are built: copies of steps, and one for the whole."""

import json

import pytest

from jobpool import UsageError
from jobpool.core.application.placeholders import MARKER, shifted
from jobpool.core.jobs.flow import Failure, NewStep, When
from support.store.client_fakes import FlowStore, adder, pool_with

GOOD, BAD, ENDED = When.SUCCEEDED, When.FAILED, When.FINISHED


@pytest.fixture
def store():
    return FlowStore()


@pytest.fixture
def jobs(store):
    return pool_with(store)


@pytest.fixture
def add(jobs):
    return adder(jobs)


def stored(store, flow):
    """Store a flow; return its steps and the arguments of its members."""
    flow.enqueue()
    made, members, _ = store.made[-1]
    return made.steps, [(number, json.loads(job.payload)) for number, job in members]


def edges(steps):
    return {step.number: dict(step.after) for step in steps}


def order(jobs, add, **options):
    """Return a flow of a charge, a shipping, and a refund if that fails."""
    flow = jobs.flow("order", **options)
    paid = flow.add(add.call(1), name="paid")
    shipped = flow.add(add.call(paid.value), name="shipped")
    flow.add(add.call(paid.value), after=shipped, when="failed", name="refund")
    return flow


def test_steps_are_copied_and_a_step_without_jobs_stands_for_them(store, jobs, add):
    """It begins after what comes before it; what comes after it has its value."""
    flow = jobs.flow("day")
    opened = flow.add(add.call(0), name="opened")
    whole = flow.add(order(jobs, add), after=opened)
    flow.add(add.call(whole.value, 7), name="closed")
    steps, members = stored(store, flow)
    assert steps == (
        NewStep(number=0, name="opened"),
        NewStep(number=1, name="order/paid", after=((0, GOOD),)),
        NewStep(number=2, name="order/shipped", after=((1, GOOD),)),
        # Not even it begins if the shop was never opened.
        NewStep(number=3, name="order/refund", after=((0, GOOD), (1, GOOD), (2, BAD))),
        NewStep(number=4, name="order", after=((1, GOOD), (2, GOOD), (3, ENDED))),
        NewStep(number=5, name="closed", after=((2, GOOD), (4, GOOD))),
    )
    assert members == [
        (0, {"a": 0}),
        (1, {"a": 1}),
        (2, {"a": {MARKER: 1}}),
        (3, {"a": {MARKER: 1}}),
        (5, {"a": {MARKER: 2}, "b": 7}),
    ]


@pytest.mark.parametrize("when", ["failed", "finished"])
def test_what_waits_for_its_failure_is_after_all_of_its_steps(store, jobs, add, when):
    """So the failure of none of them ends the flow before."""
    flow = jobs.flow("day")
    whole = flow.add(order(jobs, add))
    flow.add(add.call(9), after=whole, when=when)
    steps, _ = stored(store, flow)
    assert edges(steps)[4] == {0: ENDED, 1: ENDED, 2: ENDED, 3: When(when)}


def test_its_hooks_become_steps_after_it(store, jobs, add):
    """They see the results of all steps, as hooks do; the next step waits for none."""
    inner = jobs.flow("inner")
    inner.on_failure(add.call(7), name="tell")
    paid = inner.add(add.call(1))
    inner.add(add.call(2), after=paid, when="failed")
    inner.on_success(add.call(8), name="thank")
    inner.on_finish(add.call(9), name="clean")
    flow = jobs.flow("outer")
    before = flow.add(add.call(0))
    whole = flow.add(inner, after=before)
    flow.add(add.call(whole.value), name="next")
    steps, _ = stored(store, flow)
    assert {step.hook for step in steps} == {None}
    assert [step.name for step in steps] == [
        "add",
        *("inner/tell", "inner/add", "inner/add", "inner/thank", "inner/clean"),
        *("inner", "next"),
    ]
    assert edges(steps) == {
        0: {},
        1: {0: GOOD, 2: ENDED, 3: ENDED, 6: BAD},
        2: {0: GOOD},
        3: {0: GOOD, 2: BAD},
        4: {2: GOOD, 6: GOOD},
        5: {0: GOOD, 2: ENDED, 3: ENDED, 6: ENDED},
        6: {2: GOOD, 3: ENDED},
        7: {2: GOOD, 6: GOOD},
    }


def test_flows_within_flows_within_flows(store, jobs, add):
    """Numbers and names move along; values and last steps are found at any depth."""
    deep = jobs.flow("deep")
    first = deep.add(add.call(1))
    deep.add(add.call(first.value), name="last")
    deep.on_success(add.call(0), name="thank")
    middle = jobs.flow("middle")
    middle.add(add.call(5), name="side")
    held = middle.add(deep, name="part")
    middle.add(add.call(held.value), name="side-2")
    outer = jobs.flow("outer")
    outer.add(add.call(6))
    whole = outer.add(middle)
    with pytest.raises(UsageError, match=r"^value: middle has 2 last steps .*side"):
        _ = whole.value
    alone = outer.add(deep, after=whole, name="again")
    outer.add(add.call(alone.value))
    steps, members = stored(store, outer)
    assert [step.name for step in steps][1:8] == [
        "middle/side",
        *("middle/part/add", "middle/part/last", "middle/part/thank", "middle/part"),
        *("middle/side-2", "middle"),
    ]
    assert edges(steps)[6] == {3: GOOD, 5: GOOD}
    # After the last steps, but not what was a hook.
    assert edges(steps)[8] == {1: GOOD, 6: GOOD, 7: GOOD}
    values = [arguments["a"] for _, arguments in members]
    assert values == [
        6,
        5,
        1,
        {MARKER: 2},
        0,
        {MARKER: 3},
        1,
        {MARKER: 8},
        0,
        {MARKER: 9},
    ]


def test_a_chain_within_a_flow_has_the_value_of_its_last_step(store, jobs, add):
    chain = jobs.chain(add.call(1), name="row").then(add.rest(2))
    flow = jobs.flow("outer")
    one, two = flow.add(chain), flow.add(chain, name="other")
    flow.add(add.call(one.value, two.value))
    longer = jobs.chain(add.call(1))
    longer.then(add.rest())
    with pytest.raises(UsageError, match=r"use what its then\(\)"):
        flow.add(longer)
    steps, members = stored(store, flow)
    assert [step.name for step in steps] == [
        *("row/add", "row/add", "row"),
        *("other/add", "other/add", "other"),
        "add",
    ]
    assert members[-1] == (6, {"a": {MARKER: 1}, "b": {MARKER: 4}})
    assert edges(steps)[6] == {1: GOOD, 2: GOOD, 4: GOOD, 5: GOOD}


def test_the_inner_flow_is_copied_as_it_is_and_can_still_be_stored(store, jobs, add):
    inner = order(jobs, add, tenant="acme")
    flow = jobs.flow("outer")
    flow.add(inner)
    flow.add(inner)
    inner.add(add.call(5))
    assert len(stored(store, flow)[0]) == 8
    steps, members = stored(store, inner)
    assert [step.name for step in steps] == ["paid", "shipped", "refund", "add"]
    assert members[1] == (1, {"a": {MARKER: 0}})
    again = jobs.flow("again")
    again.add(inner)
    assert len(stored(store, again)[0]) == 5


def test_generators_of_its_jobs_go_to_the_outer_flow(store, jobs, add):
    """They are consumed when that is stored, and then by nobody else."""
    made = []

    def calls(held):
        for n in range(3):
            made.append(n)
            yield add.call(held.value, n)

    inner = jobs.flow("inner")
    first = inner.add(add.call(1))
    parts = inner.add_many(calls(first), after=first)
    flow = jobs.flow("outer")
    before = flow.add(add.call(0))
    whole = flow.add(inner, after=before)
    flow.add_many((add.call(n, 2) for n in range(2)), after=whole)
    assert made == []
    said = "the generators of this flow went to <Flow outer"
    with pytest.raises(UsageError, match=rf"{said}.*Nothing was stored"):
        inner.enqueue()
    with pytest.raises(UsageError, match=rf"is used up: {said}.*nothing was added"):
        flow.add(inner)
    steps, members = stored(store, flow)
    assert [step.name for step in steps][1:] == [
        "inner/add",
        "inner/add",
        "inner",
        "add",
    ]
    assert members[2:5] == [(2, {"a": {MARKER: 1}, "b": n}) for n in range(3)]
    assert (parts.many, whole.many) == (True, True)


def test_a_generator_may_hold_the_value_of_a_whole_that_it_is_after(store, jobs, add):
    flow = jobs.flow("outer")
    whole = flow.add(order(jobs, add))
    flow.add_many((add.call(whole.value) for _ in range(2)), after=whole)
    assert stored(store, flow)[1][-1] == (4, {"a": {MARKER: 1}})
    late = jobs.flow("late")
    late.add_many(add.call(whole.value) for whole in [late.add(order(jobs, add))])
    with pytest.raises(UsageError, match="not among the steps in after="):
        late.enqueue()


def test_the_inner_tenant_and_priority_go_before_the_outer_ones(store, jobs, add):
    """And those of a job's own options before both; likewise at any depth."""
    deep = jobs.flow("deep", priority=3)
    deep.add(add.call(1))
    inner = jobs.flow("inner", tenant="acme", priority=2)
    inner.add_many([add.call(1), add.options(priority=0, tenant="own").call(1)])
    inner.wait_for("approval")
    inner.add(deep)
    flow = jobs.flow("outer", tenant="shop", priority=1)
    flow.add(inner)
    flow.add(deep)
    flow.add(add.call(1))
    flow.enqueue()
    _, members, _ = store.made[-1]
    assert [(job.tenant, job.priority) for _, job in members] == [
        *(("acme", 2), ("own", 0), ("acme", 2), ("acme", 3)),
        *(("shop", 3), ("shop", 1)),
    ]


def test_failure_holds_for_the_whole(store, jobs, add):
    """What is not said is as in the outer flow; what is said must be, at any depth."""
    with pytest.raises(UsageError, match="'continue', and this flow 'fail'"):
        jobs.flow("silent").add(order(jobs, add, failure="continue"))
    middle = jobs.flow("middle")
    middle.add(order(jobs, add, failure="fail"))
    flow = jobs.flow("outer", failure="continue")
    with pytest.raises(UsageError, match="'fail', and this flow 'continue'"):
        flow.add(middle)
    flow.add(order(jobs, add))
    flow.add(order(jobs, add, failure="continue"))
    flow.enqueue()
    middle.enqueue()
    made = [flow.failure for flow, *_ in store.made]
    assert made == [Failure.CONTINUE, Failure.FAIL]


class Reversing:
    """A codec."""

    name = "reversing"

    def encode(self, data):
        return data[::-1]

    def decode(self, data):
        return data[::-1]


def test_what_a_codec_has_encoded_names_the_outer_steps_too(store):
    codec = Reversing()
    jobs = pool_with(store, codec=codec)
    add = adder(jobs)
    flow = jobs.flow("outer")
    flow.add(add.call(0))
    flow.add(jobs.chain(add.call(1)).then(add.rest(2)))
    flow.enqueue()
    number, job = store.made[-1][1][-1]
    encoding = jobs._gateway.encoding
    assert (number, job.codec) == (2, "reversing")
    assert MARKER.encode() not in job.payload
    decoded = encoding.decoded(job.payload, job.codec)
    assert json.loads(decoded) == {"a": {MARKER: 1}, "b": 2}


def test_no_text_is_taken_for_the_value_of_a_step():
    """Only what was packed as such is given another number."""
    text = '{"$jobpool.step":3}'
    given = {"a": text, "b": [{MARKER: 3}, {MARKER: [41]}], "c": {"x": text + '{"'}}
    packed = json.dumps(given, separators=(",", ":")).encode()
    moved = given | {"b": [{MARKER: 10}, {MARKER: [48]}]}
    assert json.loads(shifted(packed, 7)) == moved


def wrong(jobs, add):
    """Return flows that cannot be added, with what is said of each."""
    flow = jobs.flow("outer")
    hooks = jobs.flow("hooks")
    hooks.on_finish(add.call(1))
    long = jobs.flow("x" * 200)
    long.add(add.call(1), name="y" * 100)
    other = pool_with(FlowStore())
    theirs = jobs.flow("theirs").add(order(jobs, add))
    return [
        (lambda: flow.add(flow), "^add: <Flow outer of .* is this flow itself"),
        (lambda: flow.add(order(jobs, add, key="k")), "has a key, which only"),
        (lambda: flow.add(jobs.chain(add.call(1), key="k")), "has a key, which only"),
        (lambda: flow.add(order(jobs, add, failure="continue")), "'continue', and thi"),
        (lambda: flow.add(jobs.flow("empty")), "has no steps but hooks"),
        (lambda: flow.add(hooks), "has no steps but hooks"),
        (lambda: flow.add(order(other, add)), "is of another JobPool"),
        (lambda: flow.add(long), "name: 301 characters"),
        (lambda: flow.add(order(jobs, add), when="failed"), "name some"),
        (lambda: flow.add(order(jobs, add), after=theirs), "of this flow returned"),
        (lambda: flow.add(add.call(theirs.value)), "a step of another flow"),
        (lambda: flow.on_finish(order(jobs, add)), "expected a call.* got Flow"),
        (lambda: flow.add_many(order(jobs, add)), "a list or generator of calls"),
    ]


@pytest.mark.parametrize("index", range(13))
def test_a_flow_that_cannot_be_within_another_is_refused(store, jobs, add, index):
    """Nothing is added of it."""
    cases = wrong(jobs, add)
    assert len(cases) == 13
    use, said = cases[index]
    with pytest.raises(UsageError, match=said):
        use()


def test_its_value_is_not_there_once_it_has_merely_ended(jobs, add):
    flow = jobs.flow("outer")
    whole = flow.add(order(jobs, add))
    with pytest.raises(UsageError, match="has a value only if it has succeeded"):
        flow.add(add.call(whole.value), after=whole, when="finished")


def test_the_last_step_has_to_be_there_without_failures(jobs, add):
    """A compensation and what was a hook are none; a clean-up in any case is one."""
    inner = order(jobs, add)
    inner.on_success(add.call(0))
    assert jobs.flow("outer").add(inner).lasts[0].name == "order/shipped"
    tidied = jobs.flow("tidied")
    tidied.add(add.call(1), after=tidied.add(inner), when="finished", name="tidy")
    (last,) = jobs.flow("outer").add(tidied).lasts
    assert last.name == "tidied/tidy"


def test_a_name_that_gets_too_long_only_when_it_is_stored_is_refused_then(jobs, add):
    """That of a generator's jobs."""
    inner = jobs.flow("x" * 253)
    inner.add_many(add.call(n) for n in range(2))
    flow = jobs.flow("outer")
    flow.add(inner)
    with pytest.raises(UsageError, match="name: 257 characters"):
        flow.enqueue()
