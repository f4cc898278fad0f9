"""The value of a flow's step, where it is given to another step as an argument."""

from __future__ import annotations

from typing import Any, NoReturn

from jobpool.core.application.placeholders import placeholder
from jobpool.errors import UsageError


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

    def _is_used(self, *_: object) -> NoReturn:
        """Refuse to be made text or a condition: that would be of the placeholder.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"the value of step {self.number} of a flow is not there before the step "
            "has ended, so it can be no part of a text or a condition: give it to "
            "handler.call(...) as it is, and use it in the handler"
        )

    __str__ = __format__ = __bool__ = _is_used

    def packed(self) -> dict[str, Any]:
        """Return what stands for it in a payload."""
        return placeholder(self.number, many=self.many)
