"""What follows from the ends of members: notes, and the steps that they lead to.

Theory of operation. A note says only "look at this step". What is to become of it is
decided by `core.rules.flows` from how its members are and how the steps before it have
ended, so that a note too many changes nothing. A look may not take too long: if it has
work left for later it leaves a note again. A step's end leaves one at each step behind.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.jobs.flow import (
    UNAPPROVED,
    Ending,
    FlowState,
    StepState,
    skip_reason,
)
from jobpool.core.jobs.job import TIME_MAX_MS, JobState
from jobpool.core.rules.flows import (
    Before,
    Next,
    end_of,
    ended,
    ends_flow,
    opened,
    opened_hook,
)
from jobpool.core.rules.lifecycle import JobEvent, after
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.tables.flows import Flow, Step
from jobpool.store.memory.tables.ordered_set import id_of, time_of
from jobpool.store.memory.tables.rows import Row
from jobpool.store.records.flows import Folded

_replace = msgspec.structs.replace
BAD = frozenset({JobState.DEAD, JobState.QUARANTINED, JobState.CANCELED})
"""A member that has ended so has failed its step."""


class Folding:
    """The part of the store that lets flows go on."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    def fold(self, limit: int = 1000) -> Folded:
        """See `Store.fold`."""
        with self._session.writing:
            return fold(self._database, self._clock.utc_ms(), limit)


def fold(database: MemoryDatabase, now_ms: int, limit: int = 1000) -> Folded:
    """Look at noted steps, within a transaction.

    Args:
        database: what is changed.
        now_ms: the store's clock.
        limit: so many steps and members at most.
    """
    return _Fold(database, now_ms, limit).run()


def held_back(row: Row, now_ms: int) -> Row:
    """Return a member that has not begun as it waits while its flow is paused.

    Its clocks stand still meanwhile: what has passed of them since it was created is
    taken off, and `let_go` adds what will have passed by then.
    """
    return _shifted(row, after(row.state, JobEvent.HOLD), row.created_at_ms - now_ms)


def let_go(row: Row, now_ms: int) -> Row:
    """Return a member that has waited as it is when its step is ready."""
    state = after(row.state, JobEvent.PROCEED)
    shifted = _shifted(row, state, now_ms - row.created_at_ms)
    if shifted.run_at_ms > now_ms:
        return shifted
    due: Row = _replace(shifted, state=after(state, JobEvent.FALL_DUE))
    return due


def _shifted(row: Row, state: JobState, by_ms: int) -> Row:
    expires_at_ms = row.expires_at_ms
    if expires_at_ms is not None:
        expires_at_ms = min(expires_at_ms + by_ms, TIME_MAX_MS)
    shifted: Row = _replace(
        row,
        state=state,
        run_at_ms=min(row.run_at_ms + by_ms, TIME_MAX_MS),
        expires_at_ms=expires_at_ms,
    )
    return shifted


class _Fold:
    """One call of `fold`."""

    def __init__(self, database: MemoryDatabase, now_ms: int, limit: int) -> None:
        self._database = database
        self._now_ms = now_ms
        self._left = limit
        """So many steps and members may still be changed."""
        self._opened: set[str] = set()

    def run(self) -> Folded:
        has_overdue = self._end_overdue()
        notes = self._database.flow_notes
        while notes and self._left > 0:
            step_id = next(iter(notes))
            self._database.put(notes, step_id, None)
            self._left -= 1
            step = self._database.steps.get(step_id)
            if step is not None:
                self._look(step)
        return Folded(bool(notes) or has_overdue, frozenset(self._opened))

    def _end_overdue(self) -> bool:
        """Cancel what nobody has approved in time; say whether more of it is there."""
        steps, jobs = self._database.steps, self._database.jobs
        while (rank := steps.until.first()) is not None:
            if time_of(rank) > self._now_ms:
                return False
            if self._left <= 0:
                return True
            step = steps[id_of(rank)]
            for job_id in list(jobs.unended.get(step.id, ())):
                self._cancel(jobs[job_id], UNAPPROVED)
            self._put(_replace(step, until_ms=None))
            self._left -= 1
        return False

    def _look(self, step: Step) -> None:
        """Let become of a step what is to become of it, and of its members."""
        flow = self._database.flows[step.flow]
        if flow.finished_at_ms is not None:
            return
        if step.state is StepState.CLOSED:
            following = self._opened_as(flow, step)
            if following is None:
                return
            step = self._begun(step, following)
        if step.state is StepState.SKIPPING or (
            step.state is StepState.READY and step.hook is None and flow.ending
        ):
            has_more = self._end_members(flow, step)
        elif step.state is StepState.READY:
            has_more = self._open_members(flow, step)
        else:
            return
        if has_more:
            self._database.note_step(step.id)
            return
        following = self._ended_as(step)
        if following is not None:
            self._end(flow, step, following)

    def _opened_as(self, flow: Flow, step: Step) -> Next | None:
        """Return what becomes of a closed step; None: it stays closed."""
        steps = self._database.steps
        if step.hook is not None:
            return (
                None
                if flow.id in steps.unended
                else opened_hook(step.hook, self._end_of(flow))
            )
        edges = (
            Before(before.state, before.failed, edge.when)
            for edge in step.before
            for before in (steps[edge.step],)
        )
        return opened(edges, flow.ending)

    def _begun(self, step: Step, following: Next) -> Step:
        """Store that a step is no longer closed, and return it."""
        until_ms = None
        if following.state is StepState.READY and step.timeout_ms is not None:
            until_ms = self._now_ms + step.timeout_ms
        changed: Step = _replace(
            step, state=following.state, failed=following.failed, until_ms=until_ms
        )
        self._put(changed)
        return changed

    def _ended_as(self, step: Step) -> Next | None:
        """Return how a step has ended; None: it has not."""
        jobs = self._database.jobs
        is_unfinished = step.id in jobs.unended and bool(jobs.unended[step.id])
        is_bad = not is_unfinished and any(
            row.state in BAD and row.replaced_by is None
            for row in map(jobs.__getitem__, jobs.members.get(step.id, ()))
        )
        return ended(
            step.state, failed=step.failed, is_unfinished=is_unfinished, is_bad=is_bad
        )

    def _end_members(self, flow: Flow, step: Step) -> bool:
        """End what of a step has not begun; say whether more of that is left.

        What runs is asked to stop if the flow was canceled, and else goes on.
        """
        jobs = self._database.jobs
        rows = map(jobs.__getitem__, jobs.unended.get(step.id, ()))
        asks = flow.ending is Ending.CANCEL
        ending = (
            row
            for row in rows
            if row.held is None or (asks and not row.held.cancel_requested)
        )
        found = list(islice(ending, self._left + 1))
        for row in found[: self._left]:
            if row.held is None:
                self._cancel(row, skip_reason(flow.ending, failed=step.failed))
            else:
                asked = _replace(row.held, cancel_requested=True)
                self._database.put_job(row, _replace(row, held=asked))
        has_more = len(found) > self._left
        self._left -= min(len(found), self._left)
        return has_more

    def _open_members(self, flow: Flow, step: Step) -> bool:
        """Let a ready step's members begin; say whether some must wait yet."""
        jobs = self._database.jobs
        waiting = jobs.held_back.get(step.id)
        if not waiting or step.external or flow.state is FlowState.PAUSED:
            return False
        for job_id in list(waiting.lowest(self._left)):
            row = jobs[job_id]
            self._database.put_job(row, let_go(row, self._now_ms))
            self._opened.add(row.new.pool)
            self._left -= 1
        return bool(waiting)

    def _end(self, flow: Flow, step: Step, following: Next) -> None:
        """Store that a step has ended, and have those looked at that this concerns."""
        steps = self._database.steps
        self._put(
            _replace(
                step, state=following.state, failed=following.failed, until_ms=None
            )
        )
        for edge in step.behind:
            self._database.note_step(edge.step)
        out = (edge.when for edge in step.behind)
        if (
            step.hook is None
            and flow.ending is None
            and ends_flow(following, out, flow.failure)
        ):
            flow = _replace(flow, ending=Ending.FAIL)
            self._database.put(self._database.flows, flow.id, flow)
            for step_id in sorted(steps.unended.get(flow.id, ())):
                self._database.note_step(step_id)
        if flow.id in steps.unended:
            return
        if flow.id not in steps.hooks:
            over = _replace(flow, state=self._end_of(flow), finished_at_ms=self._now_ms)
            if flow.is_erased:
                over = _replace(over, key=None, tenant=None)
            self._database.put(self._database.flows, flow.id, over)
        elif step.hook is None:
            for step_id in sorted(steps.hooks[flow.id]):
                self._database.note_step(step_id)

    def _end_of(self, flow: Flow) -> FlowState:
        any_failed = flow.id in self._database.steps.failed
        return end_of(flow.ending, any_failed=any_failed)

    def _cancel(self, row: Row, reason: str) -> None:
        canceled = _replace(
            row,
            state=after(row.state, JobEvent.CANCEL),
            finished_at_ms=self._now_ms,
            ended=_replace(row.ended, reason=reason),
        )
        self._database.put_job(row, canceled)

    def _put(self, step: Step) -> None:
        self._database.put(self._database.steps, step.id, step)
