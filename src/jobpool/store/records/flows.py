"""Records of flows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from jobpool.core.jobs.flow import Ending, Failure, FlowState, Hook, StepState, When
from jobpool.core.jobs.job import JobState


class Folded(NamedTuple):
    """What one call of `Store.fold` has done."""

    is_short: bool = False
    """Another call would find more to do."""
    opened: frozenset[str] = frozenset()
    """The pools in which members have become runnable, or will when they are due."""
    canceled: bool = False
    """Members that might have begun are canceled."""


class FlowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which flows; None: any."""

    name: str | None = None
    key: str | None = None
    tenant: str | None = None
    states: tuple[FlowState, ...] | None = None
    ids: tuple[int, ...] | None = None


class FlowRow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as stored."""

    id: int
    name: str
    key: str | None
    tenant: str | None
    state: FlowState
    failure: Failure
    ending: Ending | None
    """Why nothing more of its plain steps is to begin; None: no reason yet."""
    generation: int
    """From 1; how often it was retried is one less."""
    created_at_ms: int
    finished_at_ms: int | None
    ref: str = ""
    """Its id in a form that cannot be guessed (`core.jobs.ref`)."""


class AskRow(NamedTuple):
    """An external step that is ready: somebody has to decide."""

    flow: int
    flow_name: str
    number: int
    name: str
    until_ms: int | None
    """When its time has run out; None: it waits for ever."""
    ref: str
    """The flow's."""


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step as stored."""

    id: int
    """As in `jobs.step`."""
    number: int
    name: str
    state: StepState
    failed: bool
    hook: Hook | None
    external: bool
    timeout_ms: int | None
    until_ms: int | None
    """Of an external step that is ready: when its time has run out."""
    after: tuple[tuple[int, When], ...] = ()
    """The numbers of the steps before it, and how they must have ended."""
    jobs: Mapping[JobState, int] = msgspec.field(default_factory=dict)
    """How many of its members are in which state; replaced ones do not count."""
    first_job: int | None = None
    """The lowest id of these members; None: it has none."""
    began_ms: int | None = None
    """The first of their `started_at_ms`: of each, when its newest attempt began."""
    ended_ms: int | None = None
    """The last of their `finished_at_ms`."""


class FlowDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A flow with its steps, in order of their numbers."""

    row: FlowRow
    steps: tuple[StepRow, ...]


class StepResult(NamedTuple):
    """The result of a member that has succeeded."""

    job_id: int
    number: int
    """Its step's."""
    kind: str
    result: bytes | None
    """None: null."""
    codec: str | None
    is_erased: bool = False
    """There was a result, which was erased."""


class MemberOf(NamedTuple):
    """The place of a member in its flow."""

    flow: int
    number: int
    """Its step's."""
    generation: int
    """The flow's, when its row was made."""
    before: tuple[int, ...]
    """The numbers of the steps before its own."""
