"""A flow that has ended goes on: as `store.operations.flows.retry`, in memory."""

from __future__ import annotations

import msgspec

from jobpool.core.jobs.flow import FlowState, StepState
from jobpool.core.jobs.job import JobState
from jobpool.core.rules.flows import Over, retried
from jobpool.core.rules.lifecycle import JobEvent, after
from jobpool.store.memory.enqueue import new_row
from jobpool.store.memory.flows.fold import BAD
from jobpool.store.memory.flows.operating import FlowOperating
from jobpool.store.memory.set_apart.misfits import MisfitKeeping
from jobpool.store.memory.tables.flows import Flow, Step
from jobpool.store.memory.tables.rows import Row, revived
from jobpool.store.operations.flows.retry import erased, first_adders, unfinished

_replace = msgspec.structs.replace


class FlowRetrying(FlowOperating, MisfitKeeping):
    """The part of the store that lets flows go on that have ended."""

    def retry_flow(self, flow_id: int) -> bool:
        """See `Store.retry_flow`."""
        with self._session.writing:
            flow = self._database.flows.get(flow_id)
            if flow is None or flow.finished_at_ms is None:
                return False
            steps = {one: self._database.steps[one] for one in flow.steps}
            anew = retried({one: _over(step) for one, step in steps.items()})
            if not anew:
                return False
            for one in flow.steps:
                for job_id in self._database.jobs.unended.get(one, ()):
                    raise unfinished(flow_id, job_id)
            rows = {one: self._rows(flow, steps[one], anew[one]) for one in anew}
            goes_on = _replace(
                flow,
                state=FlowState.OPEN,
                ending=None,
                finished_at_ms=None,
                generation=flow.generation + 1,
            )
            self._put_flow(goes_on)
            now_ms = self._clock.utc_ms()
            for step_id, state in anew.items():
                for row in rows[step_id]:
                    if state is StepState.READY:
                        self._renew(row)
                    else:
                        self._copy(row, goes_on.generation, now_ms)
                if state is StepState.CLOSED:
                    self._drop_added(step_id)
                self._put_step(steps[step_id], state, now_ms)
        return True

    def _rows(self, flow: Flow, step: Step, state: StepState) -> list[Row]:
        """Return the members of a step that are to run again, in order.

        Raises:
            UsageError: one was erased; nothing was changed.
        """
        jobs = self._database.jobs
        ids = sorted(jobs.members.get(step.id, ()))
        rows = [row for row in map(jobs.__getitem__, ids) if row.replaced_by is None]
        if state is StepState.READY:
            rows = [row for row in rows if row.state in BAD]
        else:
            there = {row.id for row in rows}
            rows = [row for row in rows if row.added_by not in there]
        for row in rows:
            if not row.new.payload and not step.external:
                raise erased(flow.id, row.id)
        return rows

    def _renew(self, row: Row) -> None:
        runnable = after(row.state, JobEvent.REVIVE)
        fresh = revived(row, after(runnable, JobEvent.HOLD), row.created_at_ms)
        self._database.put_job(row, fresh)
        self._forget_misfits([row.id])

    def _copy(self, row: Row, generation: int, now_ms: int) -> None:
        new = _replace(row.new, delay_ms=0, run_at_ms=None, expires_in_ms=None)
        made = new_row(self._database.jobs.take_id(), new, now_ms)
        waiting = _replace(
            made,
            state=JobState.WAITING,
            step=row.step,
            generation=generation,
            replays=row.id,
        )
        self._database.put_job(None, waiting)
        self._database.put_job(row, _replace(row, replaced_by=made.id))

    def _drop_added(self, step_id: int) -> None:
        """Replace what members have added by what replaces those who add it again."""
        jobs = self._database.jobs
        rows = map(jobs.__getitem__, sorted(jobs.members.get(step_id, ())))
        left = [row for row in rows if row.replaced_by is None and row.added_by]
        first = first_adders((row.id, row.added_by or 0) for row in left)
        for row in left:
            replaced_by = jobs[first[row.id]].replaced_by
            self._database.put_job(row, _replace(row, replaced_by=replaced_by))

    def _put_step(self, step: Step, state: StepState, now_ms: int) -> None:
        is_timed = state is StepState.READY and step.timeout_ms is not None
        until_ms = now_ms + (step.timeout_ms or 0) if is_timed else None
        fresh = _replace(step, state=state, failed=False, until_ms=until_ms)
        self._database.put(self._database.steps, step.id, fresh)
        self._database.note_step(step.id)


def _over(step: Step) -> Over:
    return Over(step.state, step.failed, step.hook, step.before)
