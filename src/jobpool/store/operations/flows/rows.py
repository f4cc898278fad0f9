"""What a fold reads: typed, or None for a row that another program has damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jobpool.core.jobs.flow import Ending, Failure, FlowState, Hook, StepState, When
from jobpool.core.rules.flows import Before


class Head(NamedTuple):
    """A flow that is folded."""

    id: int
    state: FlowState
    failure: Failure
    ending: Ending | None


class Contested(NamedTuple):
    """Queries of a store that others write meanwhile."""

    lock: str
    """Locks flows, unless somebody folds them."""
    missed: str
    """Finds steps with members that were passed over, since others held them."""


class Seen(NamedTuple):
    """A step, and how its members are."""

    id: int
    flow: int
    state: StepState
    failed: bool
    hook: Hook | None
    external: bool
    timeout_ms: int | None
    until_ms: int | None
    is_unfinished: bool
    is_waiting: bool
    is_bad: bool


def read_head(row: Sequence[Any]) -> Head | None:
    """Return a row of flow_heads; None: it is damaged."""
    flow, state, failure, ending = row
    try:
        return Head(
            flow,
            FlowState(state),
            Failure(failure),
            None if ending is None else Ending(ending),
        )
    except ValueError:
        return None


def read_step(row: Sequence[Any]) -> Seen | None:
    """Return a row of flow_steps; None: it is damaged."""
    step, flow, state, failed, hook, external, timeout_ms, until_ms, *members = row
    if failed not in {0, 1} or external not in {0, 1}:
        return None
    if any(type(one) not in {int, type(None)} for one in (timeout_ms, until_ms)):
        return None
    try:
        return Seen(
            step,
            flow,
            StepState(state),
            bool(failed),
            None if hook is None else Hook(hook),
            bool(external),
            timeout_ms,
            until_ms,
            *map(bool, members),
        )
    except ValueError:
        return None


def read_before(row: Sequence[Any]) -> Before | None:
    """Return state, failed and condition of steps_before; None: one is damaged."""
    state, failed, when = row
    if failed not in {0, 1}:
        return None
    try:
        return Before(StepState(state), bool(failed), When(when))
    except ValueError:
        return None


def read_when(value: Any) -> When | None:
    """Return the condition of an edge; None: it is damaged."""
    try:
        return When(value)
    except ValueError:
        return None


def read_hook(value: Any) -> Hook | None:
    """Return which hook a step is; None: that is damaged."""
    try:
        return Hook(value)
    except ValueError:
        return None
