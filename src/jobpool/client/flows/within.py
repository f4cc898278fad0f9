"""Flows within flows: what is made of the steps of one that is added to another.

Theory of operation. Stores know of no flows within flows: all is done when the outer
one is built. The inner steps are copied, and a step without jobs stands for the whole.
It is after all of them: `SUCCEEDED` after those that are done in a run without
failures, `FINISHED` after the others, which are compensations. So it ends when all of
them have ended; it is done if nothing has failed, and else skipped as failed.

What begins if the whole has succeeded is after the whole, and after its last steps,
whose results it reads. What begins if the whole has failed, or has ended, is after all
of its steps (`FINISHED`): it may read what there is, and no failure of theirs ends the
outer flow before it. A step that comes before the whole comes before each inner step
that could begin though those before it there have not succeeded: of a flow that is not
reached not even a compensation runs.

A stored flow says no more of all this than names: a step without jobs after nothing but
steps whose names begin with its own and a slash stands for them; a step after it of
such a name was a hook.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jobpool.client.flows.node import Node, Origin, done_without_failures
from jobpool.client.flows.step import Step
from jobpool.core.jobs.flow import Hook, StepState, When
from jobpool.errors import UsageError

if TYPE_CHECKING:
    from jobpool.store.records.flows import StepRow

R_co = TypeVar("R_co", covariant=True)
_HOOKS = {
    Hook.SUCCESS: When.SUCCEEDED,
    Hook.FAILURE: When.FAILED,
    Hook.FINISH: When.FINISHED,
}
"""How the whole must have ended for what was a hook."""
_NAMED_MAX = 5
"""Most steps that a message names."""


class Part(ABC, Generic[R_co]):
    """What can be added to a flow as a whole: another flow, or a chain."""

    __slots__ = ()

    @abstractmethod
    def _as_flow(self) -> Any:
        """Return it as a `Flow`; refuse if it is not to be used any more."""


class Whole(Step[R_co]):
    """What stands for a flow that was added to another one. Made by `Flow.add`.

    Args:
        flow: the outer flow.
        number: of its step without jobs.
        name: as it is shown.
        inside: the numbers of its steps, but hooks.
        lasts: those of its steps after which none of them comes, in a run without
            failures. If it is one, its value is that of the whole.
    """

    __slots__ = ("inside", "lasts")

    def __init__(
        self,
        flow: object,
        number: int,
        name: str,
        *,
        inside: tuple[int, ...],
        lasts: tuple[Step[R_co], ...],
    ) -> None:
        many = len(lasts) == 1 and lasts[0].many
        super().__init__(flow, number, name, many=many, hook=None)
        self.inside = inside
        self.lasts = lasts

    @property
    def value(self) -> R_co:
        """The result of its one last step; as `Step.value`.

        Raises:
            UsageError: it has several last steps.
        """
        if len(self.lasts) != 1:
            names = ", ".join(map(repr, self.lasts[:_NAMED_MAX]))
            raise UsageError(
                f"value: {self.name} has {len(self.lasts)} last steps ({names}) and "
                "so no one value; what is after it reads their results by "
                "current().results(handler)"
            )
        return self.lasts[0].value

    def conditions(self, when: When) -> dict[int, When]:
        """Return the edges to a step that begins when the whole has ended so."""
        if when is When.SUCCEEDED:
            return dict.fromkeys(
                (self.number, *(last.number for last in self.lasts)), when
            )
        return dict.fromkeys(self.inside, When.FINISHED) | {self.number: when}


def copied(
    nodes: Sequence[Node],
    within: Origin,
    name: str,
    before: Mapping[int, When],
) -> tuple[list[Node], Whole[Any]]:
    """Return a flow's steps as steps of another, and the step that stands for them.

    Args:
        nodes: the inner flow's.
        within: the outer flow; what is added to numbers, put before names, and left
            to jobs that do not say.
        name: of the whole.
        before: the edges to the whole, in the outer flow's numbers.

    Returns:
        A copy of each in the same order, and last the node of the whole; its step.
    """
    first = within.shift
    number = first + len(nodes)
    done = done_without_failures(nodes)
    inside = {
        first + node.step.number: (
            When.SUCCEEDED if node.step.number in done else When.FINISHED
        )
        for node in nodes
        if node.step.hook is None
    }
    copies: list[Node] = []
    for node in nodes:
        after = {first + one: when for one, when in node.after.items()}
        if node.step.hook is not None:
            after = _after_hook(_HOOKS[node.step.hook], number, inside)
        needs_all = bool(after) and set(after.values()) == {When.SUCCEEDED}
        if not needs_all and not isinstance(node.step, Whole):
            after |= before
        copies.append(
            node._replace(
                step=_step(node.step, within, copies),
                after=after,
                origin=node.origin.moved(within),
                is_aside=node.is_aside or node.step.hook is not None,
            )
        )
    candidates = [one for one in done if not nodes[one].is_aside]
    lasts: list[Step[Any]] = []
    for one in _ends(candidates, [node.after for node in nodes]):
        last = copies[one].step
        lasts += last.lasts if isinstance(last, Whole) else (last,)
    whole = Whole[Any](
        within.flow, number, name, inside=tuple(inside), lasts=tuple(lasts)
    )
    return [*copies, Node(whole, inside, (), Origin(within.flow))], whole


def _after_hook(when: When, whole: int, inside: Mapping[int, When]) -> dict[int, When]:
    """Return what comes before a step that was a hook, such that it reads all results.

    Args:
        when: how the whole must have ended.
        whole: its number.
        inside: the edges to it.
    """
    if when is When.SUCCEEDED:
        done = [number for number, one in inside.items() if one is When.SUCCEEDED]
        return dict.fromkeys((*done, whole), when)
    return dict.fromkeys(inside, When.FINISHED) | {whole: when}


def _step(step: Step[Any], within: Origin, copies: Sequence[Node]) -> Step[Any]:
    """Return a step as one of the outer flow; those before it are copied already."""
    number = within.shift + step.number
    name = step.name and within.prefix + step.name
    if isinstance(step, Whole):
        return Whole(
            within.flow,
            number,
            name,
            inside=tuple(within.shift + one for one in step.inside),
            lasts=tuple(copies[last.number].step for last in step.lasts),
        )
    return Step(within.flow, number, name, many=step.many, hook=None)


def last_steps(steps: Sequence[StepRow], number: int | None = None) -> list[StepRow]:
    """Return the steps of a stored flow whose results are those of a step.

    Args:
        steps: all of the flow's, in order of their numbers.
        number: of the step; it itself, unless it stands for a flow within. None: of
            the flow, which has succeeded.
    """
    befores = [dict(step.after) for step in steps]

    def ends(numbers: Iterable[int]) -> list[StepRow]:
        plain = [one for one in numbers if not _is_aside(steps[one], steps)]
        return [last for end in _ends(plain, befores) for last in lasts(steps[end])]

    def lasts(step: StepRow) -> list[StepRow]:
        if not _is_whole(step, steps):
            return [step]
        return ends(before for before, when in step.after if when is When.SUCCEEDED)

    if number is not None:
        return lasts(steps[number])
    return ends(
        step.number
        for step in steps
        if step.hook is None and step.state is not StepState.SKIPPED
    )


def _is_whole(step: StepRow, steps: Sequence[StepRow]) -> bool:
    """Say whether a step stands for the steps before it."""
    return (
        not any(step.jobs.values())
        and bool(step.after)
        and all(_is_within(steps[before], step) for before, _ in step.after)
    )


def _is_aside(step: StepRow, steps: Sequence[StepRow]) -> bool:
    """Say whether a step was a hook of a flow within."""
    return any(
        _is_within(step, steps[before]) and _is_whole(steps[before], steps)
        for before, _ in step.after
    )


def _is_within(step: StepRow, whole: StepRow) -> bool:
    return step.name.startswith(f"{whole.name}/")


def _ends(numbers: Sequence[int], befores: Sequence[Mapping[int, object]]) -> list[int]:
    """Return those of some steps that come before none of the others, in order.

    Args:
        numbers: of these steps.
        befores: of each step of the flow, those right before it.
    """
    earlier: set[int] = set()
    left = [before for number in numbers for before in befores[number]]
    while left:
        number = left.pop()
        if number not in earlier:
            earlier.add(number)
            left += befores[number]
    return sorted(set(numbers) - earlier)
