"""Chain: a flow of steps in a row, each of which gets the result of the one before."""

from __future__ import annotations

from typing import Any, TypeVar

from jobpool.client.flows.flow import Flow
from jobpool.client.flows.run import FlowRun
from jobpool.client.flows.step import Step
from jobpool.client.flows.within import Part
from jobpool.client.handler import Rest
from jobpool.errors import UsageError

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Chain(Part[R_co]):
    """Steps in a row. Made by `JobPool.chain`.

    Args:
        flow: the steps so far.
        last: the last of them.
    """

    __slots__ = ("_flow", "_goes_on", "_last")

    def __init__(self, flow: Flow, last: Step[R_co]) -> None:
        self._flow = flow
        self._last = last
        self._goes_on = False

    def __repr__(self) -> str:
        return f"<Chain up to {self._last!r}>"

    def then(self, rest: Rest[R_co, T], /) -> Chain[T]:
        """Add a step that gets the result of the last one as its first argument.

        Args:
            rest: ``handler.rest(...)``: its other arguments.

        Returns:
            The longer chain, to be used instead of this one.

        Raises:
            ArgumentsRejected: the arguments do not fit.
            UsageError: they cannot be in a flow, or the chain goes on already.
        """
        if not isinstance(rest, Rest):
            raise UsageError(
                "then: expected a call without its first argument, such as "
                f"handler.rest(...), got {type(rest).__name__}; nothing was added"
            )
        self._end()
        step = self._flow.add(rest.call(self._last.value))
        self._goes_on = True
        return Chain(self._flow, step)

    def enqueue(self, *, connection: Any = None) -> FlowRun[R_co]:
        """Store the chain as a flow; as `Flow.enqueue`.

        Returns:
            Its handle; its result is that of the last step.
        """
        self._end()
        return self._flow.enqueue(connection=connection)

    async def enqueue_async(self, *, connection: Any = None) -> FlowRun[R_co]:
        """Store the chain without blocking the event loop; otherwise as `enqueue`."""
        self._end()
        return await self._flow.enqueue_async(connection=connection)

    def _as_flow(self) -> Flow:
        self._end()
        return self._flow

    def _end(self) -> None:
        if self._goes_on:
            raise UsageError(
                "this chain goes on already: use what its then() has returned"
            )
