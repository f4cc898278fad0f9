"""Step: a node of a flow that is being built, and the place where its results go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from jobpool.client.payload.step_value import StepValue

if TYPE_CHECKING:
    from jobpool.core.jobs.flow import Hook

R_co = TypeVar("R_co", covariant=True)


class Step(Generic[R_co]):
    """One step of a flow: a job, or those of `Flow.add_many`. Made by `Flow`.

    Args:
        flow: the flow.
        number: its own, within the flow, from 0.
        name: as it is shown.
        many: it has any number of jobs, and its value is the list of their results.
        hook: at which end of the flow it runs; None: it is a plain step.
    """

    __slots__ = ("_flow", "_many", "hook", "name", "number")

    def __init__(
        self, flow: object, number: int, name: str, *, many: bool, hook: Hook | None
    ) -> None:
        self._flow = flow
        self._many = many
        self.number = number
        self.name = name
        self.hook = hook

    def __repr__(self) -> str:
        return f"<Step {self.number} {self.name}>"

    @property
    def value(self) -> R_co:
        """Its result, to be given to the call of another step of the flow.

        Until that runs it is a placeholder: its type is for type checkers. It may
        stand wherever a value may, also within lists and dataclasses, and the other
        step is after this one.
        """
        return cast("R_co", StepValue(self._flow, self.number, many=self._many))

    @property
    def many(self) -> bool:
        """Whether it has any number of jobs."""
        return self._many

    def is_of(self, flow: object) -> bool:
        """Say whether it is a step of this flow."""
        return self._flow is flow
