"""What follows from what in a flow, over the full product of states."""

from itertools import product

import pytest

from jobpool.core.jobs.flow import (
    EDGES_MAX,
    ENDED_STEPS,
    STEPS_MAX,
    UNFINISHED_FLOWS,
    Ending,
    Failure,
    FlowState,
    Hook,
    NewFlow,
    NewStep,
    StepState,
    When,
)
from jobpool.core.rules.flows import (
    FLOW_MOVES,
    STEP_MOVES,
    Before,
    Next,
    Over,
    check_flow,
    end_of,
    ended,
    ends_flow,
    holds,
    opened,
    opened_hook,
    retried,
)
from jobpool.errors import UsageError

EDGES = [Before(*one) for one in product(StepState, (False, True), When)]
HOLDING = {
    (StepState.DONE, False, When.SUCCEEDED),
    (StepState.DONE, False, When.FINISHED),
    (StepState.DONE, True, When.FAILED),
    (StepState.DONE, True, When.FINISHED),
    (StepState.SKIPPED, False, When.FINISHED),
    (StepState.SKIPPED, True, When.FAILED),
    (StepState.SKIPPED, True, When.FINISHED),
}


@pytest.mark.parametrize("edge", EDGES)
def test_an_edge_holds_as_the_step_before_it_has_ended(edge):
    expected = edge in HOLDING if edge.state in ENDED_STEPS else None
    assert holds(edge) is expected


@pytest.mark.parametrize("one", EDGES)
def test_a_closed_step_opens_if_all_edges_hold_and_waits_for_all_of_them(one):
    """It has failed if a step that makes an edge not hold has; in either order."""
    for other in EDGES:
        check_opened(one, other)


def check_opened(one, other):
    found = opened([one, other], None)
    assert found == opened([other, one], None)
    if None in (holds(one), holds(other)):
        assert found is None
    elif holds(one) and holds(other):
        assert found == Next(StepState.READY)
    else:
        failed = any(edge.failed and not holds(edge) for edge in (one, other))
        assert found == Next(StepState.SKIPPING, failed)


def test_a_step_after_none_begins_at_once():
    assert opened([], None) == Next(StepState.READY)


@pytest.mark.parametrize(("edge", "ending"), list(product(EDGES, Ending)))
def test_nothing_begins_in_a_flow_that_ends(edge, ending):
    """Whether or not the steps before it have ended."""
    assert opened([edge], ending) == opened([], ending) == Next(StepState.SKIPPING)


def test_a_refund_that_is_not_needed_is_no_failure_and_a_mail_that_was_is():
    shipped = StepState.DONE
    assert opened([Before(shipped, False, When.FAILED)], None) == (
        StepState.SKIPPING,
        False,
    )
    assert opened([Before(shipped, True, When.SUCCEEDED)], None) == (
        StepState.SKIPPING,
        True,
    )


@pytest.mark.parametrize(
    ("state", "failed", "is_unfinished", "is_bad"),
    list(product(StepState, *[(False, True)] * 3)),
)
def test_a_step_ends_with_its_last_member(state, failed, is_unfinished, is_bad):
    found = ended(state, failed=failed, is_unfinished=is_unfinished, is_bad=is_bad)
    expected = {
        StepState.READY: Next(StepState.DONE, is_bad),
        StepState.SKIPPING: Next(StepState.SKIPPED, failed),
    }
    assert found == (None if is_unfinished else expected.get(state))


@pytest.mark.parametrize(
    ("state", "failed", "out", "failure"),
    list(
        product(
            StepState,
            (False, True),
            [(), *[(one,) for one in When], *product(When, When)],
            Failure,
        )
    ),
)
def test_a_failure_that_nobody_waits_for_ends_the_flow(state, failed, out, failure):
    """Its own: steps that are skipped for it do not, so that a refund is not lost."""
    is_handled = When.FAILED in out or When.FINISHED in out
    expected = (
        failure is Failure.FAIL
        and state is StepState.DONE
        and failed
        and not is_handled
    )
    assert ends_flow(Next(state, failed), out, failure) is expected


@pytest.mark.parametrize(
    ("ending", "failed"), list(product([None, *Ending], (False, True)))
)
def test_a_flow_ends_as_its_plain_steps_have_unless_it_was_canceled(ending, failed):
    end = end_of(ending, any_failed=failed)
    if ending is Ending.CANCEL:
        assert end is FlowState.CANCELED
    else:
        assert end is (FlowState.FAILED if failed else FlowState.SUCCEEDED)
    begins = {hook for hook in Hook if opened_hook(hook, end).state is StepState.READY}
    assert begins == {
        Hook.FINISH,
        Hook.SUCCESS if end is FlowState.SUCCEEDED else Hook.FAILURE,
    }
    assert not any(opened_hook(hook, end).failed for hook in Hook)


def test_the_tables_have_every_state_and_lead_to_ends():
    assert set(STEP_MOVES) == set(StepState)
    assert set(FLOW_MOVES) == set(FlowState)
    for state in StepState:
        assert (state in ENDED_STEPS) == (STEP_MOVES[state] <= {"closed", "ready"})
    for flow in FlowState:
        is_end = FLOW_MOVES[flow] == {FlowState.OPEN}
        assert is_end == (flow not in UNFINISHED_FLOWS or flow is FlowState.BUILDING)


def test_every_move_that_is_decided_is_in_the_table():
    for edge, ending in product(EDGES, [None, *Ending]):
        if move := opened([edge], ending):
            assert move.state in STEP_MOVES[StepState.CLOSED]
    for state, failed, bad in product(StepState, (False, True), (False, True)):
        if move := ended(state, failed=failed, is_unfinished=False, is_bad=bad):
            assert move.state in STEP_MOVES[state]


def flow_of(*steps):
    return NewFlow(name="f", steps=steps)


def step(number, *after, **fields):
    edges = tuple((one, When.SUCCEEDED) for one in after)
    return NewStep(number=number, name=f"n{number}", after=edges, **fields)


def test_any_graph_without_circles_is_accepted():
    """Edges may lead backwards, too: no order of steps is asked for."""
    check_flow(flow_of(step(0, 2), step(1), step(2, 1), step(3, hook=Hook.FINISH)))
    check_flow(flow_of(step(0, external=True, timeout_ms=1), step(1, external=True)))
    check_flow(flow_of(*(step(n, *([n - 1] if n else [])) for n in range(STEPS_MAX))))


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([], "no steps"),
        ([step(n) for n in range(STEPS_MAX + 1)], "10,001 steps, at most 10,000"),
        ([step(1)], "step 1 where step 0 was expected"),
        ([step(0), step(0)], "step 0 where step 1 was expected"),
        ([step(0, 1)], r"step 0 \(n0\) is after step 1, which does not exist"),
        ([step(0, -1)], "after step -1, which does not exist"),
        ([step(0), step(1, 0, 0)], "two edges from the same step"),
        ([step(0, 0)], r"wait for each other: step 0 \(n0\), step 0 \(n0\);"),
        ([step(0, 2), step(1, 0), step(2, 1)], "wait for each other"),
        ([step(0, hook=Hook.FINISH), step(1, 0)], r"after step 0 \(n0\), which is a h"),
        ([step(0), step(1, 0, hook=Hook.FINISH)], r"step 1 \(n1\) is a hook"),
        ([step(0, hook=Hook.SUCCESS, external=True)], "is a hook"),
        ([step(0, timeout_ms=5)], "only an external step"),
        ([step(0, external=True, timeout_ms=0)], "more than none"),
        (
            [step(0), *(step(n, *range(n)) for n in range(1, 460))],
            f"edges, at most {EDGES_MAX:,}",
        ),
    ],
)
def test_a_flow_that_cannot_end_or_is_too_large_is_refused(steps, said):
    with pytest.raises(UsageError, match=rf"^flow 'f': .*{said}.*nothing was stored$"):
        check_flow(flow_of(*steps))


def over(state, *after, failed=False, hook=None):
    """Return a step of an ended flow."""
    return Over(state, failed, hook, after)


DONE, SKIPPED = StepState.DONE, StepState.SKIPPED
SHIPPED = {
    0: over(DONE),
    1: over(DONE, (0, When.SUCCEEDED), failed=True),
    2: over(SKIPPED, (1, When.SUCCEEDED), failed=True),
    3: over(DONE, (1, When.FAILED)),
    4: over(DONE, (0, When.SUCCEEDED)),
    5: over(SKIPPED, (0, When.FAILED)),
    6: over(SKIPPED, (5, When.SUCCEEDED)),
    7: over(DONE, hook=Hook.FAILURE),
}


def test_a_retry_begins_with_what_failed_and_all_that_comes_after_it():
    """Also a compensation that ran; not what succeeded, nor what was not needed."""
    ready, closed = StepState.READY, StepState.CLOSED
    assert retried(SHIPPED) == {1: ready, 2: closed, 3: closed, 7: closed}


def test_a_retry_begins_what_was_skipped_since_its_flow_was_ending():
    """The steps before it have succeeded: nothing but the end held it back."""
    steps = {0: over(DONE), 1: over(SKIPPED, (0, When.SUCCEEDED), failed=False)}
    assert retried(steps) == {1: StepState.CLOSED}


def test_a_flow_of_which_nothing_failed_is_not_retried():
    """Its hooks neither, whether one of them has failed or not."""
    hook = over(DONE, failed=True, hook=Hook.FINISH)
    assert retried({0: over(DONE), 1: over(SKIPPED, (0, When.FAILED)), 2: hook}) == {}


@pytest.mark.parametrize("state", ENDED_STEPS)
def test_a_retry_moves_steps_only_as_the_table_allows(state):
    """From whatever they ended as."""
    steps = {0: over(DONE, failed=True), 1: over(state, (0, When.FINISHED))}
    moves = retried(steps)
    assert moves == {0: StepState.READY, 1: StepState.CLOSED}
    for number, after in moves.items():
        assert after in STEP_MOVES[steps[number].state]
