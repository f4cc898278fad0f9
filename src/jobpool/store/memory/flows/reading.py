"""What people and programs see of flows; nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from heapq import nsmallest

from jobpool.core.jobs.flow import FlowState, StepState
from jobpool.core.jobs.job import JobState, says_erased
from jobpool.core.jobs.ref import flow_id_of, flow_ref_of
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.tables.flows import Flow, Step
from jobpool.store.memory.tables.rows import Row
from jobpool.store.records.flows import (
    AskRow,
    FlowDetail,
    FlowFilter,
    FlowRow,
    MemberOf,
    StepResult,
    StepRow,
)


class FlowReading:
    """The part of the store that shows flows."""

    _database: MemoryDatabase
    _session: Session

    def open_flows(self) -> dict[str, int]:
        """See `Store.open_flows`."""
        with self._session.reading:
            flows = self._database.flows.rows.values()
            return dict(
                Counter(
                    flow.state.value for flow in flows if flow.finished_at_ms is None
                )
            )

    def flows(
        self, which: FlowFilter, limit: int = 100, before_id: int | None = None
    ) -> list[FlowRow]:
        """See `Store.flows`."""
        with self._session.reading:
            found = sorted(
                (
                    flow
                    for flow in self._database.flows.rows.values()
                    if _is_meant(flow, which)
                    and (before_id is None or flow.id < before_id)
                ),
                key=lambda flow: -flow.id,
            )
            return [self._flow_row(flow) for flow in found[: max(0, limit)]]

    def strays(self, limit: int = 100) -> list[int]:
        """See `Store.strays`; no other program writes here."""
        del limit
        return []

    def asks(self, limit: int = 100) -> list[AskRow]:
        """See `Store.asks`."""
        with self._session.reading:
            rows, steps = self._database.flows.rows, self._database.steps
            opened = [one for one in rows.values() if one.state is FlowState.OPEN]
            found = [
                AskRow(
                    flow.id,
                    flow.name,
                    step.number,
                    step.name,
                    step.until_ms,
                    flow_ref_of(flow.id, self._database.ref_key),
                )
                for flow in sorted(opened, key=lambda one: one.id)
                for step in map(steps.__getitem__, flow.steps)
                if step.external
                and step.state is StepState.READY
                and self._is_undecided(step)
            ]
        return found[:limit]

    def _is_undecided(self, step: Step) -> bool:
        jobs = self._database.jobs
        rows = map(jobs.__getitem__, jobs.members.get(step.id, ()))
        return any(row.finished_at_ms is None for row in rows)

    def flow(self, flow_id: int) -> FlowDetail | None:
        """See `Store.flow`."""
        with self._session.reading:
            flow = self._database.flows.get(flow_id)
            if flow is None:
                return None
            steps = [self._step_row(self._database.steps[one]) for one in flow.steps]
            return FlowDetail(row=self._flow_row(flow), steps=tuple(steps))

    def flow_id_of(self, ref: str) -> int | None:
        """See `Store.flow_id_of`."""
        with self._session.reading:
            return flow_id_of(ref, self._database.ref_key)

    def flow_of(self, job_id: int) -> MemberOf | None:
        """See `Store.flow_of`."""
        with self._session.reading:
            row, steps = self._database.jobs.get(job_id), self._database.steps
            step = None if row is None or row.step is None else steps.get(row.step)
            if row is None or step is None:
                return None
            before = sorted(steps[edge.step].number for edge in step.before)
            return MemberOf(step.flow, step.number, row.generation, tuple(before))

    def step_results(
        self,
        flow_id: int,
        numbers: Collection[int] | None = None,
        after_id: int = 0,
        limit: int = 1000,
    ) -> list[StepResult]:
        """See `Store.step_results`."""
        with self._session.reading:
            flow, jobs = self._database.flows.get(flow_id), self._database.jobs
            steps = [] if flow is None else [*enumerate(flow.steps)]
            numbered = {
                job_id: number
                for number, step_id in steps
                if numbers is None or number in numbers
                for job_id in jobs.members.get(step_id, ())
                if job_id > after_id
                and jobs[job_id].state is JobState.SUCCEEDED
                and jobs[job_id].replaced_by is None
            }
            return [
                _result_of(row, number)
                for job_id, number in nsmallest(limit, numbered.items())
                for row in (jobs[job_id],)
            ]

    def _flow_row(self, flow: Flow) -> FlowRow:
        return FlowRow(
            id=flow.id,
            name=flow.name,
            key=flow.key,
            tenant=flow.tenant,
            state=flow.state,
            failure=flow.failure,
            ending=flow.ending,
            generation=flow.generation,
            created_at_ms=flow.created_at_ms,
            finished_at_ms=flow.finished_at_ms,
            ref=flow_ref_of(flow.id, self._database.ref_key),
        )

    def _step_row(self, step: Step) -> StepRow:
        jobs, steps = self._database.jobs, self._database.steps
        rows = [
            row
            for row in map(jobs.__getitem__, jobs.members.get(step.id, ()))
            if row.replaced_by is None
        ]
        began = [row.begun.started_at_ms for row in rows]
        ended = [row.finished_at_ms for row in rows]
        return StepRow(
            id=step.id,
            number=step.number,
            name=step.name,
            state=step.state,
            failed=step.failed,
            hook=step.hook,
            external=step.external,
            timeout_ms=step.timeout_ms,
            until_ms=step.until_ms,
            after=tuple(
                sorted((steps[edge.step].number, edge.when) for edge in step.before)
            ),
            jobs=Counter(row.state for row in rows),
            first_job=min((row.id for row in rows), default=None),
            began_ms=min((at for at in began if at is not None), default=None),
            ended_ms=max((at for at in ended if at is not None), default=None),
        )


def _result_of(row: Row, number: int) -> StepResult:
    is_erased = says_erased(row.ended.reason)
    result = b"null" if row.result is None else row.result
    return StepResult(row.id, number, row.new.kind, result, row.new.codec, is_erased)


def _is_meant(flow: Flow, which: FlowFilter) -> bool:
    return (
        flow.state is not FlowState.BUILDING
        and which.name in {None, flow.name}
        and which.key in {None, flow.key}
        and which.tenant in {None, flow.tenant}
        and (which.states is None or flow.state in which.states)
        and (which.ids is None or flow.id in which.ids)
    )
