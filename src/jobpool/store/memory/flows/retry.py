"""A flow goes on from what has failed: as `store.operations.flows.retry`, in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from jobpool.core.jobs.flow import (
    LEFT_OUT,
    RETRIED,
    RETRIED_MAX,
    Ending,
    FlowState,
    StepState,
)
from jobpool.core.jobs.job import JobState
from jobpool.core.rules.flows import Over, retried
from jobpool.core.rules.lifecycle import JobEvent, after
from jobpool.store.memory.enqueue import new_row
from jobpool.store.memory.flows.fold import BAD
from jobpool.store.memory.flows.operating import FlowOperating
from jobpool.store.memory.set_apart.misfits import MisfitKeeping
from jobpool.store.memory.tables.flows import Flow, Step
from jobpool.store.memory.tables.rows import Row, revived
from jobpool.store.operations.flows.refusals import (
    Given,
    canceling,
    erased,
    not_retried,
    running,
    too_many,
    unfinished,
    why_not,
)
from jobpool.store.operations.flows.retry import first_adders

_replace = msgspec.structs.replace
_BEGUN = (StepState.READY, StepState.DONE)


class FlowRetrying(FlowOperating, MisfitKeeping):
    """The part of the store that lets flows go on from what has failed."""

    def retry_flow(self, flow_id: int, jobs: Sequence[int] = ()) -> bool:
        """See `Store.retry_flow`."""
        with self._session.writing:
            flow = self._database.flows.get(flow_id)
            if flow is None or (flow.finished_at_ms is None and not jobs):
                return False
            if flow.finished_at_ms is None and flow.ending is Ending.CANCEL:
                raise canceling(flow_id)
            steps = {one: self._database.steps[one] for one in flow.steps}
            chosen = self._begin_with(flow, jobs)
            begin = None if chosen is None else {*chosen.values()}
            anew = retried({one: _over(step) for one, step in steps.items()}, begin)
            if not anew:
                return False
            self._refuse_unended(flow, anew)
            rows = {
                one: self._rows(flow, steps[one], anew[one], chosen) for one in anew
            }
            if sum(map(len, rows.values())) > RETRIED_MAX:
                raise too_many(flow_id)
            goes_on = _replace(
                flow,
                state=FlowState.OPEN if flow.finished_at_ms else flow.state,
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
                        self._copy(
                            self._canceled_for_it(row, now_ms),
                            goes_on.generation,
                            now_ms,
                        )
                if state is StepState.CLOSED:
                    self._drop_added(step_id, now_ms)
                self._put_step(steps[step_id], state, now_ms)
        return True

    def _begin_with(self, flow: Flow, jobs: Sequence[int]) -> dict[int, int] | None:
        """See `store.operations.flows.retry`."""
        if not jobs:
            return None
        for job_id in jobs:
            if problem := why_not(self._given(flow, job_id)):
                raise not_retried(flow.id, job_id, problem)
        named = {job_id: self._database.jobs[job_id].step or 0 for job_id in jobs}
        return {**self._left_out(flow), **named}

    def _given(self, flow: Flow, job_id: int) -> Given | None:
        row = self._database.jobs.get(job_id)
        if row is None or row.step is None or row.step not in flow.steps:
            return None
        step = self._database.steps[row.step]
        return Given(row.id, row.state, row.replaced_by, step.id, step.state, step.hook)

    def _left_out(self, flow: Flow) -> dict[int, int]:
        """Return members of steps that had begun that did not since it was ending."""
        return {
            row.id: step_id
            for step_id in flow.steps
            if self._database.steps[step_id].hook is None
            and self._database.steps[step_id].state in _BEGUN
            for row in self._newest(step_id)
            if row.state in BAD and row.ended.reason in LEFT_OUT
        }

    def _refuse_unended(self, flow: Flow, anew: Mapping[int, StepState]) -> None:
        jobs = self._database.jobs
        if flow.finished_at_ms is not None:
            for one in flow.steps:
                for job_id in jobs.unended.get(one, ()):
                    raise unfinished(flow.id, job_id)
        for one, state in anew.items():
            for job_id in jobs.unended.get(one, ()):
                if state is StepState.CLOSED and jobs[job_id].held is not None:
                    raise running(flow.id, job_id)

    def _newest(self, step_id: int) -> list[Row]:
        """Return the members of a step that nothing has replaced, in order."""
        jobs = self._database.jobs
        rows = map(jobs.__getitem__, sorted(jobs.members.get(step_id, ())))
        return [row for row in rows if row.replaced_by is None]

    def _rows(
        self,
        flow: Flow,
        step: Step,
        state: StepState,
        chosen: Collection[int] | None,
    ) -> list[Row]:
        """Return the members of a step that are to run again, in order.

        Raises:
            UsageError: one was erased; nothing was changed.
        """
        rows = self._newest(step.id)
        if state is StepState.READY:
            rows = [
                row
                for row in rows
                if row.state in BAD and (chosen is None or row.id in chosen)
            ]
        else:
            there = {row.id for row in rows}
            rows = [row for row in rows if row.added_by not in there]
        for row in rows:
            if not row.new.payload and not step.external:
                raise erased(flow.id, row.id)
        return rows

    def _canceled_for_it(self, row: Row, now_ms: int) -> Row:
        """Return a member that another takes the place of, as it has ended."""
        if row.finished_at_ms is not None:
            return row
        canceled = _replace(
            row,
            state=after(row.state, JobEvent.CANCEL),
            finished_at_ms=now_ms,
            ended=_replace(row.ended, reason=RETRIED),
        )
        self._database.put_job(row, canceled)
        return canceled

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

    def _drop_added(self, step_id: int, now_ms: int) -> None:
        """Replace what members have added by what replaces those who add it again."""
        left = [row for row in self._newest(step_id) if row.added_by is not None]
        first = first_adders((row.id, row.added_by or 0) for row in left)
        for row in left:
            replaced_by = self._database.jobs[first[row.id]].replaced_by
            ended = self._canceled_for_it(row, now_ms)
            self._database.put_job(ended, _replace(ended, replaced_by=replaced_by))

    def _put_step(self, step: Step, state: StepState, now_ms: int) -> None:
        is_timed = state is StepState.READY and step.timeout_ms is not None
        until_ms = now_ms + (step.timeout_ms or 0) if is_timed else None
        fresh = _replace(step, state=state, failed=False, until_ms=until_ms)
        self._database.put(self._database.steps, step.id, fresh)
        self._database.note_step(step.id)


def _over(step: Step) -> Over:
    return Over(step.state, step.failed, step.hook, step.before)
