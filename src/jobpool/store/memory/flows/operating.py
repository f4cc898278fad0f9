"""What people do to flows: cancel, pause, resume, approve."""

from __future__ import annotations

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.jobs.flow import Ending, FlowState, StepState
from jobpool.core.jobs.job import JobState
from jobpool.core.rules.lifecycle import JobEvent, after
from jobpool.errors import UsageError
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.flows.fold import held_back
from jobpool.store.memory.tables.flows import Flow

_replace = msgspec.structs.replace
_OPENED = (JobState.PENDING, JobState.RUNNABLE)


class FlowOperating:
    """The operators' part of the store, as far as flows are concerned."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    def cancel_flow(self, flow_id: int) -> bool:
        """See `Store.cancel_flow`."""
        with self._session.writing:
            flow = self._database.flows.get(flow_id)
            unended = sorted(self._database.steps.unended.get(flow_id, ()))
            if flow is None or not unended or flow.ending is Ending.CANCEL:
                return False
            self._put_flow(_replace(flow, ending=Ending.CANCEL, state=FlowState.OPEN))
            hooks = self._database.steps.hooks.get(flow_id, ())
            for step_id in [*unended, *sorted(hooks)]:
                self._database.note_step(step_id)
        return True

    def pause_flow(self, flow_id: int) -> bool:
        """See `Store.pause_flow`."""
        with self._session.writing:
            flow = self._database.flows.get(flow_id)
            if flow is None or flow.state is not FlowState.OPEN or flow.ending:
                return False
            self._put_flow(_replace(flow, state=FlowState.PAUSED))
            now_ms, jobs = self._clock.utc_ms(), self._database.jobs
            for step_id in flow.steps:
                for job_id in sorted(jobs.unended.get(step_id, ())):
                    row = jobs[job_id]
                    if row.state in _OPENED:
                        self._database.put_job(row, held_back(row, now_ms))
        return True

    def resume_flow(self, flow_id: int) -> bool:
        """See `Store.resume_flow`."""
        with self._session.writing:
            flow = self._database.flows.get(flow_id)
            if flow is None or flow.state is not FlowState.PAUSED:
                return False
            self._put_flow(_replace(flow, state=FlowState.OPEN))
            for step_id in flow.steps:
                if self._database.steps[step_id].state is StepState.READY:
                    self._database.note_step(step_id)
        return True

    def approve(
        self, job_id: int, result: bytes | None = None, codec: str | None = None
    ) -> bool:
        """See `Store.approve`."""
        with self._session.writing:
            row = self._database.jobs.get(job_id)
            step_id = None if row is None else row.step
            step = None if step_id is None else self._database.steps.get(step_id)
            if row is None or step is None or not step.external:
                raise UsageError(
                    f"job {job_id} is not the one of an external step, so that nobody "
                    "can approve it; nothing was changed"
                )
            if row.finished_at_ms is not None:
                return False
            if step.state is not StepState.READY:
                raise UsageError(
                    f"job {job_id}: the steps before {step.name!r} have not ended as "
                    "it needs, so that it cannot be approved yet; nothing was changed"
                )
            approved = _replace(
                row,
                new=_replace(row.new, codec=codec),
                state=after(row.state, JobEvent.SUCCEED),
                finished_at_ms=self._clock.utc_ms(),
                result=None if result == b"null" else result,
            )
            self._database.put_job(row, approved)
        return True

    def _put_flow(self, flow: Flow) -> None:
        self._database.put(self._database.flows, flow.id, flow)
