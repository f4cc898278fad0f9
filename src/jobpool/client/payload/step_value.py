"""The value of a flow's step, where it is given to another step as an argument."""

from __future__ import annotations

from typing import Any

from jobpool.core.application.placeholders import placeholder


class StepValue:
    """What stands for the results of a step until they exist; see ``step.value``.

    It is packed as a placeholder, and its handler is called with the results.

    Args:
        flow: the flow that the step is of.
        number: the step's, within the flow.
        many: it stands for a list with the result of each member.
    """

    __slots__ = ("flow", "many", "number")

    def __init__(self, flow: object, number: int, *, many: bool) -> None:
        self.flow = flow
        self.number = number
        self.many = many

    def __repr__(self) -> str:
        return f"<value of step {self.number}>"

    def packed(self) -> dict[str, Any]:
        """Return what stands for it in a payload."""
        return placeholder(self.number, many=self.many)
