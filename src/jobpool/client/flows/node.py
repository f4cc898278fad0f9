"""Node: a step of a flow that is being built, and where its jobs come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

from jobpool.client.flows.step import Step
from jobpool.core.jobs.flow import NewStep, StepState, When
from jobpool.core.rules.flows import Before, holds


class Origin(NamedTuple):
    """The flow in whose words the calls of a step are, which may be another one."""

    flow: object
    """Of its steps, calls hold values."""
    shift: int = 0
    """What is added to their numbers."""
    prefix: str = ""
    """Stands before the names that they would have there."""
    tenant: str | None = None
    """Of jobs whose own options do not say, if this is known before the outer flow."""
    priority: int | None = None
    """Likewise."""

    def moved(self, within: Origin) -> Origin:
        """Return it for a step that is copied to another flow."""
        return Origin(
            self.flow,
            within.shift + self.shift,
            within.prefix + self.prefix,
            within.tenant if self.tenant is None else self.tenant,
            within.priority if self.priority is None else self.priority,
        )


class Node(NamedTuple):
    """A step as declared, with where its calls come from."""

    step: Step[Any]
    after: Mapping[int, When]
    calls: Iterable[Any]
    origin: Origin
    external: bool = False
    timeout_ms: int | None = None
    is_aside: bool = False
    """It was a hook of a flow within, whose results are not its own."""

    @property
    def is_stream(self) -> bool:
        """Whether its calls can be had once only."""
        return iter(self.calls) is self.calls

    def record(self) -> NewStep:
        """Return what is stored of it."""
        return NewStep(
            number=self.step.number,
            name=self.step.name,
            after=tuple(sorted(self.after.items())),
            hook=self.step.hook,
            external=self.external,
            timeout_ms=self.timeout_ms,
        )


def done_without_failures(nodes: Sequence[Node]) -> frozenset[int]:
    """Return the numbers of the plain steps that are done if nothing fails.

    The others are compensations: they are skipped then.
    """
    plain = {node.step.number: node.after for node in nodes if node.step.hook is None}
    done: set[int] = set()
    for number in TopologicalSorter(plain).static_order():
        befores = (
            Before(StepState.DONE if one in done else StepState.SKIPPED, False, when)
            for one, when in plain[number].items()
        )
        if all(holds(before) for before in befores):
            done.add(number)
    return frozenset(done)
