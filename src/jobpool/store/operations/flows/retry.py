"""A flow that has ended goes on, in its next generation.

Theory of operation. In one transaction, under the flow's lock: `core.rules.flows` says
which steps begin anew. Members that have failed wait again with fresh counters, in
their own rows, so that the results of a step stay in the order of its calls. All
members of the steps after them are replaced by new rows in the same order, whose
generation is the flow's new one; but what members have added while they ran has no new
rows, since they add it again. Then the steps are noted, and the fold does the rest.

A flow that has ended has no members that have not, unless an operator has let a hook
run again, or an older release a member: then it cannot be retried until that has ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import ClassVar

from jobpool.core.jobs.flow import StepState, When
from jobpool.core.rules.flows import Over, retried
from jobpool.errors import UsageError
from jobpool.store.operations.flows.operate import FlowOperating
from jobpool.store.operations.flows.rows import Seen, read_step, read_when
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Depth, Session
from jobpool.store.statements.validation import storable


class FlowRetrying(FlowOperating):
    """The part of the store that lets flows go on that have ended."""

    _depth: Depth
    _LOCK_MEMBERS: ClassVar[str | None] = None
    """The query that locks a flow's members, where there are other writers."""
    _COPY_PAYLOADS: ClassVar[str | None] = None
    """The statement that copies payloads, where they are not in the jobs' rows."""

    def retry_flow(self, flow_id: int) -> bool:
        """See `Store.retry_flow`."""
        with self._database.writing() as session:
            self._hold_flow(session, flow_id)
            found = session.rows("ended_flow", flow=storable(flow_id))
            if not found:
                return False
            if self._LOCK_MEMBERS:
                session.rows(self._LOCK_MEMBERS, flow=flow_id)
            steps = _steps(session, flow_id)
            anew = retried(_ended(session, flow_id, steps))
            if not anew:
                return False
            closed = [step for step, state in anew.items() if state is StepState.CLOSED]
            session.run("keep_added", steps=as_json(closed))
            self._refuse_unfit(session, flow_id, anew)
            self._begin_anew(session, anew, steps, generation=found[0][0] + 1)
            given = {"flow": flow_id, "generation": found[0][0] + 1}
            session.run("reopen_flow", **given)
            session.run("note_steps", steps=as_json(sorted(anew)))
        return True

    def _refuse_unfit(
        self, session: Session, flow_id: int, anew: dict[int, StepState]
    ) -> None:
        ready = [step for step, state in anew.items() if state is StepState.READY]
        for job_id in session.rows("unfinished_member", flow=flow_id):
            raise unfinished(flow_id, *job_id)
        given = {"steps": as_json(anew), "ready": as_json(ready)}
        for job_id in session.rows("erased_member", **given):
            raise erased(flow_id, *job_id)

    def _begin_anew(
        self,
        session: Session,
        anew: dict[int, StepState],
        steps: dict[int, Seen],
        generation: int,
    ) -> None:
        """Let members wait again, and store how their steps are now."""
        now_ms = self._database.now_ms(session, fresh=True)
        by_state = defaultdict[StepState, list[int]](list)
        for step, state in anew.items():
            by_state[state].append(step)
        bad = session.rows("bad_members", steps=as_json(by_state[StepState.READY]))
        ids = as_json(job_id for (job_id,) in bad)
        session.run("renew_members", ids=ids)
        session.run("forget_misfits", ids=ids)
        closed = {"steps": as_json(by_state[StepState.CLOSED])}
        made = {**closed, "generation": generation}
        added = first_adders(session.rows("added_members", **closed))
        copied = session.run("copy_members", **made, now_ms=now_ms)
        if self._COPY_PAYLOADS:
            session.run(self._COPY_PAYLOADS, **made)
        session.run("replace_members", **made)
        if added:
            session.run("drop_added", rows=as_json(added.items()))
        self._depth.add(session, len(bad) + copied)
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


def unfinished(flow_id: int, job_id: int) -> UsageError:
    """Return the refusal of a flow with a member that has not ended."""
    return UsageError(
        f"flow {flow_id} has ended, but somebody lets its job {job_id} run again: wait "
        "until that has ended, or cancel it; nothing was changed"
    )


def erased(flow_id: int, job_id: int) -> UsageError:
    """Return the refusal of a flow with a member that cannot run again."""
    return UsageError(
        f"flow {flow_id} cannot be retried: its job {job_id} would run again, but was "
        "erased and has no arguments any more; nothing was changed"
    )


def damaged(flow_id: int) -> UsageError:
    """Return the refusal of a flow whose steps cannot be read."""
    return UsageError(
        f"flow {flow_id} cannot be retried: another program has damaged its steps, so "
        "that nobody knows what is to follow what; nothing was changed"
    )


def _steps(session: Session, flow_id: int) -> dict[int, Seen]:
    ids = [step for (step,) in session.rows("step_ids", flow=flow_id)]
    read = [read_step(row) for row in session.rows("flow_steps", steps=as_json(ids))]
    steps = {step.id: step for step in read if step is not None}
    if len(steps) != len(ids):
        raise damaged(flow_id)
    return steps


def _ended(session: Session, flow_id: int, steps: dict[int, Seen]) -> dict[int, Over]:
    """Return how the steps of a flow have ended."""
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
