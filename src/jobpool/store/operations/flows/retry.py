"""A flow goes on, in its next generation, from what of it has failed.

Theory of operation. In one transaction, under the flow's lock: `core.rules.flows` says
which steps begin anew. Members that have failed wait again with fresh counters, in
their own rows, so that the results of a step stay in the order of its calls. All
members of the steps after them are replaced by new rows in the same order, whose
generation is the flow's new one; but what members have added while they ran has no new
rows, since they add it again. Then the steps are noted, and the fold does the rest.

A flow that has ended has no members that have not, unless an operator has let a hook
run again, or an older release a member: then it cannot be retried until that has ended.
One that has not ended goes on from jobs that are named, unless something after these
runs; what waits after them is replaced, too, so that results keep their order. What had
been left out since the flow was ending begins in either case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from jobpool.core.jobs.flow import (
    LEFT_OUT,
    RETRIED,
    RETRIED_MAX,
    Ending,
    StepState,
    When,
)
from jobpool.core.rules.flows import Over, retried
from jobpool.store.operations.flows.operate import FlowOperating
from jobpool.store.operations.flows.refusals import (
    Given,
    canceling,
    damaged,
    erased,
    not_retried,
    running,
    too_many,
    unfinished,
    why_not,
)
from jobpool.store.operations.flows.rows import Seen, read_step, read_when
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Depth, Session
from jobpool.store.statements.validation import is_id, storable


class FlowRetrying(FlowOperating):
    """The part of the store that lets flows go on from what has failed."""

    _depth: Depth
    _LOCK_MEMBERS: ClassVar[str | None] = None
    """The query that locks members of steps, where there are other writers."""
    _COPY_PAYLOADS: ClassVar[str | None] = None
    """The statement that copies payloads, where they are not in the jobs' rows."""

    def retry_flow(self, flow_id: int, jobs: Sequence[int] = ()) -> bool:
        """See `Store.retry_flow`."""
        with self._database.writing() as session:
            self._hold_flow(session, flow_id)
            found = session.rows("retried_flow", flow=storable(flow_id))
            if not found:
                return False
            ((generation, has_ended, ending),) = found
            if not has_ended and not jobs:
                return False
            if not has_ended and ending == Ending.CANCEL:
                raise canceling(flow_id)
            steps = _steps(session, flow_id)
            chosen = self._begin_with(session, flow_id, jobs)
            begin = None if chosen is None else {*chosen.values()}
            anew = retried(_over(session, flow_id, steps), begin)
            if not anew:
                return False
            if self._LOCK_MEMBERS:
                session.rows(self._LOCK_MEMBERS, steps=as_json(sorted(anew)))
            closed = [step for step, state in anew.items() if state is StepState.CLOSED]
            session.run("keep_added", steps=as_json(closed))
            self._refuse_unfit(session, flow_id, anew, has_ended=bool(has_ended))
            ids = self._failed(session, anew, chosen)
            self._refuse_many(session, flow_id, closed, len(ids))
            self._begin_anew(session, ids, closed, generation + 1)
            self._put_steps(session, anew, steps)
            session.run("reopen_flow", flow=flow_id, generation=generation + 1)
            session.run("note_steps", steps=as_json(sorted(anew)))
        return True

    def _begin_with(
        self, session: Session, flow_id: int, jobs: Sequence[int]
    ) -> dict[int, int] | None:
        """Return members that begin anew, and their steps; None: all that have failed.

        Raises:
            UsageError: one that somebody has named does not.
        """
        if not jobs:
            return None
        known = as_json(job_id for job_id in jobs if is_id(job_id))
        rows = session.rows("given_members", flow=flow_id, ids=known)
        given = {row[0]: Given._make(row) for row in rows}
        for job_id in jobs:
            if problem := why_not(given.get(job_id)):
                raise not_retried(flow_id, job_id, problem)
        reasons = as_json(LEFT_OUT)
        left_out = session.rows("left_out", flow=flow_id, reasons=reasons)
        return {**dict(left_out), **{one.id: one.step for one in given.values()}}

    def _refuse_unfit(
        self,
        session: Session,
        flow_id: int,
        anew: Mapping[int, StepState],
        *,
        has_ended: bool,
    ) -> None:
        ready = [step for step, state in anew.items() if state is StepState.READY]
        after = as_json(anew.keys() - {*ready})
        if has_ended:
            for job_id in session.rows("unfinished_member", flow=flow_id):
                raise unfinished(flow_id, *job_id)
        for job_id in session.rows("running_member", steps=after):
            raise running(flow_id, *job_id)
        given = {"steps": as_json(anew), "ready": as_json(ready)}
        for job_id in session.rows("erased_member", **given):
            raise erased(flow_id, *job_id)

    def _failed(
        self,
        session: Session,
        anew: Mapping[int, StepState],
        chosen: Collection[int] | None,
    ) -> list[int]:
        """Return the members that begin anew in their own rows."""
        ready = [step for step, state in anew.items() if state is StepState.READY]
        rows = session.rows("bad_members", steps=as_json(ready))
        return [one for (one,) in rows if chosen is None or one in chosen]

    def _refuse_many(
        self, session: Session, flow_id: int, closed: Collection[int], failed: int
    ) -> None:
        given = {"steps": as_json(closed), "limit": RETRIED_MAX + 1}
        if failed + session.value("count_anew", **given) > RETRIED_MAX:
            raise too_many(flow_id)

    def _begin_anew(
        self,
        session: Session,
        failed: Sequence[int],
        closed: Collection[int],
        generation: int,
    ) -> None:
        """Let members wait again: some in their rows, those of closed steps in new."""
        now_ms = self._database.now_ms(session, fresh=True)
        ids, steps = as_json(failed), as_json(closed)
        session.run("renew_members", ids=ids)
        session.run("forget_misfits", ids=ids)
        rows = as_json((step, RETRIED) for step in closed)
        session.run("cancel_members", rows=rows, now_ms=now_ms, limit=RETRIED_MAX)
        added = first_adders(session.rows("added_members", steps=steps))
        made = {"steps": steps, "generation": generation}
        copied = session.run("copy_members", **made, now_ms=now_ms)
        if self._COPY_PAYLOADS:
            session.run(self._COPY_PAYLOADS, **made)
        session.run("replace_members", **made)
        if added:
            session.run("drop_added", rows=as_json(added.items()))
        self._depth.add(session, len(failed) + copied)

    def _put_steps(
        self,
        session: Session,
        anew: Mapping[int, StepState],
        steps: Mapping[int, Seen],
    ) -> None:
        now_ms = self._database.now_ms(session)
        rows = [
            (
                step,
                state,
                0,
                None
                if state is StepState.CLOSED or (time := steps[step].timeout_ms) is None
                else now_ms + time,
            )
            for step, state in anew.items()
        ]
        session.run("set_steps", rows=as_json(rows))


def first_adders(added: Iterable[Sequence[int]]) -> dict[int, int]:
    """Return who has led to each member that was added: one that was not.

    Args:
        added: members, each with who has added it, in order of adding.
    """
    first: dict[int, int] = {}
    for job_id, adder in added:
        first[job_id] = first.get(adder, adder)
    return first


def _steps(session: Session, flow_id: int) -> dict[int, Seen]:
    ids = [step for (step,) in session.rows("step_ids", flow=flow_id)]
    read = [read_step(row) for row in session.rows("flow_steps", steps=as_json(ids))]
    steps = {step.id: step for step in read if step is not None}
    if len(steps) != len(ids):
        raise damaged(flow_id)
    return steps


def _over(session: Session, flow_id: int, steps: dict[int, Seen]) -> dict[int, Over]:
    """Return how the steps of a flow are."""
    after = defaultdict[int, list[tuple[int, When]]](list)
    for from_, to, value in session.rows("edges_out", steps=as_json(steps)):
        when = read_when(value)
        if when is None or to not in steps:
            raise damaged(flow_id)
        after[to].append((from_, when))
    return {
        step.id: Over(step.state, step.failed, step.hook, tuple(after[step.id]))
        for step in steps.values()
    }
