"""Flows: jobs that wait for each other. The words and records that packages exchange.

A flow consists of steps, a step of members. A member is a job; a step has one, or many,
or none. Edges join steps: a step begins when the steps before it have ended as its
edges say. The tables of what follows from what are in `core.rules.flows`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

FLOW_AT_ONCE = 10_000
"""So many members are stored in one transaction, also a caller's; more of them in
several."""
STEPS_MAX = 10_000
"""Most steps of a flow."""
EDGES_MAX = 100_000
"""Most edges of a flow."""
RETRIED_MAX = 100_000
"""Most members that a retry of a flow lets begin anew: one transaction stores them."""
ADDED_MAX = 10_000
"""Most members that one attempt adds to its step."""
ADDED_MAX_BYTES = 4 * 2**20
"""Most that they take up as they are sent to the supervisor."""

EXTERNAL = "external."
"""The beginning of the kind of an external step's member."""


class FlowState(StrEnum):
    """A flow's state, as stored."""

    BUILDING = "building"
    """Some of its members are stored; nothing of it begins, and nobody is shown it."""
    OPEN = "open"
    PAUSED = "paused"
    """Nothing more of it begins until it is resumed; what runs goes on."""
    SUCCEEDED = "succeeded"
    """Final, like the two after it, until somebody retries it. Its hooks have ended."""
    FAILED = "failed"
    CANCELED = "canceled"


UNFINISHED_FLOWS = (FlowState.BUILDING, FlowState.OPEN, FlowState.PAUSED)


class StepState(StrEnum):
    """A step's state, as stored."""

    CLOSED = "closed"
    """It waits for the steps before it; a hook, for the end of all plain steps."""
    READY = "ready"
    """Its members may begin, or have begun."""
    SKIPPING = "skipping"
    """It is not to begin; some of its members are not canceled yet."""
    DONE = "done"
    """All of its members have ended."""
    SKIPPED = "skipped"
    """It has not begun, and never will in this generation; its members are canceled."""


ENDED_STEPS = (StepState.DONE, StepState.SKIPPED)


class When(StrEnum):
    """How a step must have ended for an edge that leaves it to hold."""

    SUCCEEDED = "succeeded"
    """It is done, and each of its members has succeeded."""
    FAILED = "failed"
    """A member is dead, quarantined or canceled; or a step before it failed."""
    FINISHED = "finished"
    """In any way."""


class Failure(StrEnum):
    """What a failed step, whose failure no edge waits for, does to its flow."""

    FAIL = "fail"
    """What has not begun is canceled."""
    CONTINUE = "continue"
    """Other branches go on; the flow has failed at its end."""


class Ending(StrEnum):
    """Why nothing more of a flow's plain steps is to begin, as stored."""

    FAIL = "fail"
    """A step has failed."""
    CANCEL = "cancel"
    """Somebody has canceled it."""


class Hook(StrEnum):
    """At which end of the flow a step begins that is a hook."""

    SUCCESS = "success"
    FAILURE = "failure"
    """Also when it was canceled."""
    FINISH = "finish"
    """At any end."""


class NewStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step to be stored."""

    number: int
    """Within its flow, from 0, in order of adding; each once."""
    name: str
    """For people; several steps may have the same."""
    after: tuple[tuple[int, When], ...] = ()
    """The numbers of the steps before it, each once, and how they must have ended."""
    hook: Hook | None = None
    """At which end of the flow it begins; None: it is a plain step. A hook has no step
    before or after it."""
    external: bool = False
    """Its one member is no work for a supervisor: somebody approves it."""
    timeout_ms: int | None = None
    """How long that may take from when it is ready; None: for ever."""


class NewFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow to be stored, without its members."""

    name: str
    steps: tuple[NewStep, ...]
    key: str | None = None
    """Idempotency key, unique within the name until the flow is pruned."""
    tenant: str | None = None
    failure: Failure = Failure.FAIL


class AskedFlow(msgspec.Struct, frozen=True):
    """A flow that a handler asks its supervisor to store, beside its members' jobs."""

    flow: NewFlow
    numbers: tuple[int, ...]
    """Of which step each of these jobs is a member, in order."""


class EnqueuedFlow(msgspec.Struct, frozen=True):
    """The store's answer for one NewFlow."""

    id: int
    created: bool
    """False: this is the flow with the same name and key that is there."""
    state: FlowState
    ref: str = ""
    """Its id in a form that cannot be guessed (`core.jobs.ref`)."""


RETRIED = "a step before it is retried"
"""Reason of a member that had not begun when another took its place for that."""
UNAPPROVED = "nobody approved it in time"
"""Reason of an external step's member whose time has run out."""


LEFT_OUT = ("its flow was canceled", "another step of its flow has failed")
"""Reasons of members that did not begin since their flow was ending."""


def skip_reason(ending: Ending | None, *, failed: bool) -> str:
    """Return the reason of a member that was canceled before it began.

    Args:
        ending: of its flow.
        failed: a step before it has failed.
    """
    if ending is Ending.CANCEL:
        return LEFT_OUT[0]
    if ending is Ending.FAIL:
        return LEFT_OUT[1]
    if failed:
        return "a step before it has failed"
    return "the steps before it have ended such that it is not needed"
