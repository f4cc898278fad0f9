"""What follows from what in a flow: pure, and the same for all stores.

Theory of operation. Nothing is counted as it happens. A store that is told to look at a
step reads how its members are, and how the steps before it have ended; these functions
say what is to become of it. Asked again, they say the same, so that one look too many
changes nothing.

A step has *failed* if a member of its newest rows is dead, quarantined or canceled; or
if it was skipped for a step before it that has failed. One that was skipped because a
step before it did *not* fail has not: a refund that is not needed is no failure.

A flow ends early (`Ending.FAIL`) for a step whose own members have failed and that no
step waits for to fail or to finish. If one does, its other successors, which are
skipped, do not end the flow either: a mail that is not sent since shipping has failed
must not take the refund with it. Nobody's failure is forgiven: a flow with a failed
step has failed at its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from jobpool.core.jobs.flow import (
    EDGES_MAX,
    ENDED_STEPS,
    STEPS_MAX,
    Ending,
    Failure,
    FlowState,
    Hook,
    NewFlow,
    NewStep,
    StepState,
    When,
)
from jobpool.errors import UsageError

_CIRCLE_SHOWN_MAX = 6
"""Most steps of a circle that a message names."""


class Before(NamedTuple):
    """An edge to a step: how the step before it is, and how it must have ended."""

    state: StepState
    failed: bool
    when: When


class Over(NamedTuple):
    """A step of a flow that is retried."""

    state: StepState
    failed: bool
    hook: Hook | None
    after: tuple[tuple[int, When], ...]
    """The steps before it, and how they must have ended."""


class Next(NamedTuple):
    """What becomes of a step."""

    state: StepState
    failed: bool = False


STEP_MOVES: Mapping[StepState, frozenset[StepState]] = {
    StepState.CLOSED: frozenset({StepState.READY, StepState.SKIPPING}),
    # To closed, and from an end: somebody retries a member of it, or of one before it.
    StepState.READY: frozenset({StepState.DONE, StepState.CLOSED}),
    StepState.SKIPPING: frozenset({StepState.SKIPPED, StepState.CLOSED}),
    StepState.DONE: frozenset({StepState.READY, StepState.CLOSED}),
    StepState.SKIPPED: frozenset({StepState.CLOSED}),
}
"""The states that may follow each state of a step."""
FLOW_MOVES: Mapping[FlowState, frozenset[FlowState]] = {
    FlowState.BUILDING: frozenset({FlowState.OPEN}),
    FlowState.OPEN: frozenset(
        {
            FlowState.PAUSED,
            FlowState.SUCCEEDED,
            FlowState.FAILED,
            FlowState.CANCELED,
        }
    ),
    # It may end while it is paused: what runs goes on, and may be all that is left.
    FlowState.PAUSED: frozenset(
        {FlowState.OPEN, FlowState.SUCCEEDED, FlowState.FAILED, FlowState.CANCELED}
    ),
    FlowState.SUCCEEDED: frozenset({FlowState.OPEN}),
    FlowState.FAILED: frozenset({FlowState.OPEN}),
    FlowState.CANCELED: frozenset({FlowState.OPEN}),
}
"""The states that may follow each state of a flow; after an end, if it is retried."""


def holds(before: Before) -> bool | None:
    """Say whether an edge holds; None: the step before it has not ended."""
    if before.state not in ENDED_STEPS:
        return None
    if before.when is When.FINISHED:
        return True
    if before.when is When.FAILED:
        return before.failed
    return before.state is StepState.DONE and not before.failed


def opened(before: Iterable[Before], ending: Ending | None) -> Next | None:
    """Return what becomes of a closed plain step; None: it stays closed.

    Args:
        before: the edges to it; none: it is ready.
        ending: of its flow: nothing begins any more.
    """
    if ending is not None:
        return Next(StepState.SKIPPING)
    edges = [(holds(one), one.failed) for one in before]
    if any(held is None for held, _ in edges):
        return None
    if all(held for held, _ in edges):
        return Next(StepState.READY)
    return Next(
        StepState.SKIPPING, any(failed for held, failed in edges if held is False)
    )


def opened_hook(hook: Hook, end: FlowState) -> Next:
    """Return what becomes of a closed hook once no plain step is left.

    Args:
        hook: at which end it begins.
        end: as `end_of` says.
    """
    fits = {
        Hook.SUCCESS: end is FlowState.SUCCEEDED,
        Hook.FAILURE: end is not FlowState.SUCCEEDED,
        Hook.FINISH: True,
    }
    return Next(StepState.READY if fits[hook] else StepState.SKIPPING)


def ended(
    state: StepState, *, failed: bool, is_unfinished: bool, is_bad: bool
) -> Next | None:
    """Return what becomes of a step that is ready or skipping; None: it stays so.

    Args:
        state: the step's.
        failed: as it is stored.
        is_unfinished: a member has not ended.
        is_bad: one of its newest rows is dead, quarantined or canceled.
    """
    if is_unfinished:
        return None
    if state is StepState.READY:
        return Next(StepState.DONE, is_bad)
    if state is StepState.SKIPPING:
        return Next(StepState.SKIPPED, failed)
    return None


def ends_flow(step: Next, out: Iterable[When], failure: Failure) -> bool:
    """Say whether a plain step's end lets nothing more of its flow begin.

    Args:
        step: as it has ended.
        out: the edges from it.
        failure: the flow's.
    """
    return (
        failure is Failure.FAIL
        and step.state is StepState.DONE
        and step.failed
        and all(when is When.SUCCEEDED for when in out)
    )


def end_of(ending: Ending | None, *, any_failed: bool) -> FlowState:
    """Return how a flow ends once no plain step is left.

    Args:
        ending: the flow's.
        any_failed: a plain step has failed.
    """
    if ending is Ending.CANCEL:
        return FlowState.CANCELED
    return FlowState.FAILED if any_failed else FlowState.SUCCEEDED


def retried(
    steps: Mapping[int, Over], chosen: Collection[int] | None = None
) -> dict[int, StepState]:
    """Return the steps that a retry of a flow begins anew.

    Args:
        steps: all of the flow's, by whatever `Over.after` names them.
        chosen: the steps whose own members begin anew; None: all that have failed.

    Returns:
        The steps whose own members begin anew: they are ready. Whatever comes after
        them, what was skipped since the flow was ending, and hooks: they are closed.
        Not those that are closed already. Empty: no plain step is among them.
    """
    anew: dict[int, StepState] = {}
    graph = {
        number: [before for before, _ in step.after] for number, step in steps.items()
    }
    for number in TopologicalSorter(graph).static_order():
        step = steps[number]
        if step.hook is not None:
            continue
        if any(before in anew for before, _ in step.after):
            anew[number] = StepState.CLOSED
        elif _begins_anew(number, step, chosen):
            anew[number] = StepState.READY
        elif step.state in {StepState.SKIPPING, StepState.SKIPPED}:
            befores = (
                Before(steps[before].state, steps[before].failed, when)
                for before, when in step.after
            )
            # What the steps before it do not let begin, they still do not.
            next_ = opened(befores, None)
            if next_ is None or next_.state is StepState.READY:
                anew[number] = StepState.CLOSED
    if anew:
        hooks = (number for number, step in steps.items() if step.hook is not None)
        anew.update(dict.fromkeys(hooks, StepState.CLOSED))
    return {
        number: state
        for number, state in anew.items()
        if state is StepState.READY or steps[number].state is not StepState.CLOSED
    }


def _begins_anew(number: int, step: Over, chosen: Collection[int] | None) -> bool:
    if chosen is None:
        return step.state is StepState.DONE and step.failed
    return number in chosen


def check_flow(flow: NewFlow) -> None:
    """Refuse a flow that could never end, or is too large.

    Raises:
        UsageError: steps form a circle, an edge leads nowhere or to a hook, a number
            is not the next one, or there are too many. Nothing was stored.
    """
    steps = flow.steps
    edges = sum(len(step.after) for step in steps)
    if not steps:
        raise _refused(flow, "it has no steps")
    if len(steps) > STEPS_MAX:
        raise _refused(
            flow,
            f"{len(steps):,} steps, at most {STEPS_MAX:,} are allowed; let one step "
            "have many members",
        )
    if edges > EDGES_MAX:
        raise _refused(
            flow,
            f"{edges:,} edges, at most {EDGES_MAX:,} are allowed; a step without "
            "members between many and many needs fewer",
        )
    for expected, step in enumerate(steps):
        if step.number != expected:
            raise _refused(
                flow, f"step {step.number} where step {expected} was expected"
            )
        if problem := _problem(step, steps):
            raise _refused(flow, f"{_named(step)} {problem}")
    _refuse_circle(flow)


def _problem(step: NewStep, steps: tuple[NewStep, ...]) -> str:
    if step.timeout_ms is not None and not (step.external and step.timeout_ms > 0):
        return "has a time, which only an external step has, and more than none"
    numbers = [number for number, _ in step.after]
    if len(set(numbers)) != len(numbers):
        return "has two edges from the same step"
    if step.hook is not None and (numbers or step.external):
        return "is a hook: it is neither external nor after other steps"
    for number in numbers:
        if not 0 <= number < len(steps):
            return f"is after step {number}, which does not exist"
        if steps[number].hook is not None:
            return f"is after {_named(steps[number])}, which is a hook"
    return ""


def _refuse_circle(flow: NewFlow) -> None:
    graph = {step.number: [number for number, _ in step.after] for step in flow.steps}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        circle = [_named(flow.steps[number]) for number in exc.args[1]]
        more = ", …" if circle[_CIRCLE_SHOWN_MAX:] else ""
        shown = ", ".join(circle[:_CIRCLE_SHOWN_MAX])
        raise _refused(flow, f"steps wait for each other: {shown}{more}") from None


def _named(step: NewStep) -> str:
    return f"step {step.number} ({step.name[:60]})"


def _refused(flow: NewFlow, problem: str) -> UsageError:
    return UsageError(f"flow {flow.name[:60]!r}: {problem}; nothing was stored")
