"""Flows and their steps; their members are jobs."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import msgspec

from jobpool.core.jobs.flow import (
    ENDED_STEPS,
    Ending,
    Failure,
    FlowState,
    Hook,
    StepState,
    When,
)
from jobpool.store.memory.tables.ordered_set import RankSet, rank_by_time


class Flow(msgspec.Struct, frozen=True):
    """A flow. Fields that `records.FlowRow` also has mean the same."""

    id: int
    name: str
    key: str | None
    tenant: str | None
    state: FlowState
    failure: Failure
    created_at_ms: int
    steps: range
    """The rows of its steps, in order of their numbers."""
    ending: Ending | None = None
    generation: int = 1
    finished_at_ms: int | None = None
    is_erased: bool = False
    """A job of it was erased: its key and its tenant go with its end."""


class Edge(NamedTuple):
    """What joins a step to another, as seen from one of them."""

    step: int
    """The other one's row."""
    when: When


class Step(msgspec.Struct, frozen=True):
    """A step. Fields that `records.StepRow` also has mean the same."""

    id: int
    flow: int
    number: int
    name: str
    state: StepState
    hook: Hook | None
    external: bool
    timeout_ms: int | None
    before: tuple[Edge, ...]
    behind: tuple[Edge, ...]
    failed: bool = False
    until_ms: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing becomes of it any more, unless somebody retries it."""
        return self.state in ENDED_STEPS


class FlowTable:
    """All flows.

    Attributes:
        by_key: ids by name and idempotency key.
    """

    def __init__(self) -> None:
        self.rows: dict[int, Flow] = {}
        self.by_key: dict[tuple[str, str], int] = {}
        self._last_id = 0

    def __getitem__(self, flow_id: int) -> Flow:
        return self.rows[flow_id]

    def get(self, flow_id: int, /) -> Flow | None:
        """See `Table.get`."""
        return self.rows.get(flow_id)

    def take_id(self) -> int:
        """Return a fresh id; ids increase and are never given out twice."""
        self._last_id += 1
        return self._last_id

    def take_ids(self, last_id: int) -> None:
        """Give out no id up to this one any more."""
        self._last_id = max(self._last_id, last_id)

    def put(self, flow_id: int, flow: Flow | None) -> None:
        """See `Table.put`."""
        former = self.rows.pop(flow_id, None)
        if former is not None and former.key is not None:
            del self.by_key[former.name, former.key]
        if flow is not None:
            self.rows[flow_id] = flow
            if flow.key is not None:
                self.by_key[flow.name, flow.key] = flow_id


class StepTable:
    """All steps.

    Attributes:
        unended: rows of plain steps that have not ended, by flow.
        hooks: the same of hooks.
        failed: rows of plain steps that have failed, by flow.
        until: external ones that are ready, by the moment at which their time is over.
    """

    def __init__(self) -> None:
        self._rows: dict[int, Step] = {}
        self._last_id = 0
        self.unended: defaultdict[int, set[int]] = defaultdict(set)
        self.hooks: defaultdict[int, set[int]] = defaultdict(set)
        self.failed: defaultdict[int, set[int]] = defaultdict(set)
        self.until = RankSet()

    def __getitem__(self, step_id: int) -> Step:
        return self._rows[step_id]

    def get(self, step_id: int, /) -> Step | None:
        """See `Table.get`."""
        return self._rows.get(step_id)

    def take_ids(self, count: int) -> range:
        """Return fresh ids that follow each other."""
        first = self._last_id + 1
        self._last_id += count
        return range(first, first + count)

    def put(self, step_id: int, step: Step | None) -> None:
        """See `Table.put`."""
        former = self._rows.pop(step_id, None)
        if former is not None:
            self._leave(former)
        if step is not None:
            self._rows[step_id] = step
            self._enter(step)

    def _enter(self, step: Step) -> None:
        if step.has_ended and step.failed and step.hook is None:
            self.failed[step.flow].add(step.id)
        elif not step.has_ended:
            (self.hooks if step.hook else self.unended)[step.flow].add(step.id)
        if step.until_ms is not None and step.state is StepState.READY:
            self.until.add(rank_by_time(step.until_ms, step.id))

    def _leave(self, step: Step) -> None:
        for index in (self.unended, self.hooks, self.failed):
            index[step.flow].discard(step.id)
            if not index[step.flow]:
                del index[step.flow]
        if step.until_ms is not None and step.state is StepState.READY:
            self.until.discard(rank_by_time(step.until_ms, step.id))
