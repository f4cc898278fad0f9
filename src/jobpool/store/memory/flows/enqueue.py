"""Storing flows: in memory, in one transaction however many members there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from jobpool.core.formats import FLOWS
from jobpool.core.jobs.flow import (
    EnqueuedFlow,
    FlowState,
    NewFlow,
    NewStep,
    StepState,
)
from jobpool.core.jobs.job import JobState, NewJob
from jobpool.core.jobs.ref import flow_ref_of
from jobpool.core.rules.flows import check_flow
from jobpool.store.memory.enqueue import Enqueueing, MemorySight, new_row
from jobpool.store.memory.tables.flows import Edge, Flow, Step
from jobpool.store.operations.flows.members import checked_members
from jobpool.store.operations.producers.fullness import beyond
from jobpool.store.statements.validation import check_new_flow, check_new_jobs

_replace = msgspec.structs.replace


class FlowEnqueueing(Enqueueing):
    """The part of the store that takes flows."""

    def enqueue_flow(
        self,
        flow: NewFlow,
        members: Iterable[tuple[int, NewJob]],
        connection: Any = None,
        *,
        wakes: bool = False,
    ) -> EnqueuedFlow:
        """See `Store.enqueue_flow`; a connection is always refused."""
        self._database.refuse(connection)
        check_flow(flow)
        check_new_flow(flow)
        given = list(checked_members(flow, members))
        self.require(FLOWS)
        with self._session.writing:
            flow_id, created = self._stored_flow(flow, given)
            state = self._database.flows[flow_id].state
            ref = flow_ref_of(flow_id, self._database.ref_key)
        if wakes:
            self.wake()
        return EnqueuedFlow(flow_id, created, state, ref)

    def _stored_flow(
        self, flow: NewFlow, given: Sequence[tuple[int, NewJob]]
    ) -> tuple[int, bool]:
        """Return the id of the flow with its key, and whether this has stored it."""
        flows, now_ms = self._database.flows, self._clock.utc_ms()
        if flow.key is not None and (flow.name, flow.key) in flows.by_key:
            return flows.by_key[flow.name, flow.key], False
        check_new_jobs([job for _, job in given], now_ms)
        stored = Flow(
            id=flows.take_id(),
            name=flow.name,
            key=flow.key,
            tenant=flow.tenant,
            state=FlowState.OPEN,
            failure=flow.failure,
            created_at_ms=now_ms,
            steps=self._database.steps.take_ids(len(flow.steps)),
        )
        self._database.put(flows, stored.id, stored)
        steps = _steps(flow, stored)
        for step in steps:
            self._database.put(self._database.steps, step.id, step)
        self._add_members(steps, given, now_ms)
        used = {number for number, _ in given}
        are_hooks = all(step.hook is not None for step in steps)
        for step in steps:
            begins = step.state is StepState.READY and step.number not in used
            if begins or are_hooks:  # No member's end would have it looked at.
                self._database.note_step(step.id)
        return stored.id, True

    def _add_members(
        self, steps: Sequence[Step], given: Sequence[tuple[int, NewJob]], now_ms: int
    ) -> None:
        """Store a new flow's members.

        Raises:
            QueueFull: there is no room for them; the transaction must be undone.
        """
        jobs = [job for _, job in given]
        begun = [
            steps[number].state is StepState.READY and not steps[number].external
            for number, _ in given
        ]
        unfinished = self._database.jobs.unfinished
        sight = MemorySight(self._database, now_ms)
        beginning = [job for job, begins in zip(jobs, begun, strict=True) if begins]
        admitted = iter(self._entrance.admit(beginning, sight))
        most = self._entrance.admission.stored_max
        if jobs and unfinished + len(jobs) > most:
            full = beyond(unfinished, most, len(jobs))
            raise self._entrance.refusal(full, jobs, sight)
        for (number, job), begins in zip(given, begun, strict=True):
            self._join_flow(
                next(admitted) if begins else job, steps[number], begins, now_ms
            )

    def _join_flow(
        self,
        job: NewJob,
        step: Step,
        begins: bool,  # noqa: FBT001 - of this class alone
        now_ms: int,
    ) -> None:
        row = new_row(self._database.jobs.take_id(), job, now_ms)
        state = row.state if begins else JobState.WAITING
        self._database.put_job(None, _replace(row, step=step.id, state=state))


def _steps(flow: NewFlow, stored: Flow) -> list[Step]:
    behind: defaultdict[int, list[Edge]] = defaultdict(list)
    for new in flow.steps:
        for number, when in new.after:
            behind[number].append(Edge(stored.steps[new.number], when))
    return [_step(new, stored, behind[new.number]) for new in flow.steps]


def _step(new: NewStep, flow: Flow, behind: Sequence[Edge]) -> Step:
    is_root = new.hook is None and not new.after
    has_time = is_root and new.timeout_ms is not None
    return Step(
        id=flow.steps[new.number],
        flow=flow.id,
        number=new.number,
        name=new.name,
        state=StepState.READY if is_root else StepState.CLOSED,
        hook=new.hook,
        external=new.external,
        timeout_ms=new.timeout_ms,
        before=tuple(Edge(flow.steps[number], when) for number, when in new.after),
        behind=tuple(behind),
        until_ms=flow.created_at_ms + (new.timeout_ms or 0) if has_time else None,
    )
