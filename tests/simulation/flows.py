"""Flows in a life: producers that enqueue them, and people that change them.

What was stored goes to the history as it was declared; what must hold is in
`support.store.flow_history`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from jobpool.core.jobs.flow import FlowState, NewFlow, StepState
from jobpool.core.jobs.job import JobState
from jobpool.errors import JobpoolError, OutcomeUnknown, UsageError
from simulation.application import call_of
from simulation.plan import FlowPlan
from support.store.history import Called, FinalFlow, FlowRetried, FlowStored

if TYPE_CHECKING:
    from jobpool.store.memory.tables.rows import Row
    from simulation.store import SimStore
    from simulation.world import World

AGAIN_S = 1.0
TRIES = 30
_RETRIED = frozenset((FlowState.FAILED, FlowState.CANCELED))
_BAD = frozenset((JobState.DEAD, JobState.QUARANTINED, JobState.CANCELED))


def copied_call_of(row: Row) -> str:
    """Return the call of a job, which has its own name if it has replaced another."""
    call = call_of(row.new.payload)
    return f"{call}:{row.id}" if row.replays else call


class Flows:
    """The flows of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plans = world.plan.flows
        self.has_any = bool(self._plans)

    def begin(self) -> None:
        """Let producers enqueue what is planned."""
        for number, plan in enumerate(self._plans):
            self._world.kernel.at(
                plan.at_s, lambda n=number, p=plan: self._produce(n, p)
            )

    def stored(self, flow: NewFlow, flow_id: int) -> FlowStored:
        """Return the record of a flow that has just been stored."""
        return FlowStored(
            at_s=self._world.kernel.now_s,
            flow=flow_id,
            declared=flow,
            members=self._newest(flow_id),
        )

    def retried(self, flow_id: int, *, is_whole: bool) -> FlowRetried:
        """Return the record of a flow that has just been retried."""
        database = self._world.database
        steps = database.flows[flow_id].steps
        self._world.sometimes["a flow was retried"] += is_whole
        self._world.sometimes["a job of a flow was retried"] += not is_whole
        return FlowRetried(
            at_s=self._world.kernel.now_s,
            flow=flow_id,
            members=self._newest(flow_id),
            skipped=tuple(
                (one.number, one.failed)
                for one in map(database.steps.__getitem__, steps)
                if one.state is StepState.SKIPPED
            ),
            is_whole=is_whole,
        )

    def made_again(self, row: Row) -> Called:
        """Return the call of a member that has just replaced another."""
        self._world.newest_job = max(self._world.newest_job, row.id)
        self._world.sometimes["a member was replaced"] += 1
        at_s = self._world.kernel.now_s
        return Called(at_s=at_s, call=copied_call_of(row), answer="stored", job=row.id)

    def members(self, flow_id: int) -> dict[int, Row]:
        """Return a flow's members, also those that others have replaced."""
        database = self._world.database
        flow = database.flows.get(flow_id)
        return {
            job: database.jobs[job]
            for step in (() if flow is None else flow.steps)
            for job in sorted(database.jobs.members.get(step, ()))
        }

    def _newest(self, flow_id: int) -> tuple[tuple[int, ...], ...]:
        """Return the members of each step that nothing has replaced."""
        database, rows = self._world.database, self.members(flow_id).values()
        newest = [row for row in rows if row.replaced_by is None]
        return tuple(
            tuple(row.id for row in newest if row.step == step)
            for step in database.flows[flow_id].steps
        )

    def final(self) -> Iterator[FinalFlow]:
        """Yield how each flow stands at the end."""
        steps = self._world.database.steps
        for flow in self._world.database.flows.rows.values():
            self._world.sometimes[f"a flow was {flow.state}"] += 1
            yield FinalFlow(
                flow=flow.id,
                state=flow.state.value,
                ending=flow.ending and flow.ending.value,
                is_over=flow.finished_at_ms is not None,
                steps=tuple(
                    (one.state.value, one.failed)
                    for one in map(steps.__getitem__, flow.steps)
                ),
            )

    # -- producers ---------------------------------------------------------------------

    def _produce(self, number: int, plan: FlowPlan) -> None:
        self._world.as_operator(lambda store: self._enqueue(number, plan, store))

    def _enqueue(self, number: int, plan: FlowPlan, store: SimStore) -> None:
        """Enqueue a flow, again under its key, if it has one, until that is known."""
        world, places = self._world, list(enumerate(plan.members))
        calls = [f"f{number}.{place}" for place, _ in places]
        given = [
            (step, world.new_job(call, job))
            for call, (_, (step, job)) in zip(calls, places, strict=True)
        ]
        for _ in range(TRIES):
            jobs: dict[str, int] = {}
            try:
                enqueued = store.enqueue_flow(plan.flow, given)
            except OutcomeUnknown:
                answer = "unknown"
            except JobpoolError:
                answer = "refused"
            else:
                answer, jobs = "stored", self._jobs_of(enqueued.id)
                world.sometimes["a flow's key was known"] += not enqueued.created
            for call in calls:
                world.note(
                    Called(
                        at_s=world.kernel.now_s,
                        call=call,
                        answer=answer,
                        job=jobs.get(call, 0),
                    )
                )
            if answer == "stored":
                world.newest_job = max([world.newest_job, *jobs.values()])
                world.wake()
                return
            if answer == "unknown" and plan.flow.key is None:
                return
            world.kernel.sleep(AGAIN_S)

    def _jobs_of(self, flow_id: int) -> dict[str, int]:
        """Return a flow's members by their calls."""
        rows = self.members(flow_id).values()
        return {call_of(row.new.payload): row.id for row in rows if not row.replays}

    # -- people ------------------------------------------------------------------------

    def change(self, what: str, where: int, seconds: float = 0.0) -> None:
        """Cancel some flow, or pause it and resume it after a while."""
        flows = sorted(self._world.database.flows.rows)
        if not flows:
            return
        flow_id = flows[where % len(flows)]

        def act(store: SimStore) -> None:
            if what == "cancel":
                self._attempt(lambda: store.cancel_flow(flow_id))
                return
            self._attempt(lambda: store.pause_flow(flow_id))
            self._world.kernel.sleep(seconds)
            self._attempt(lambda: store.resume_flow(flow_id))

        self._world.as_operator(act)

    def retry(self, where: int) -> None:
        """Retry some flow that has failed, or some member that has."""
        flows = sorted(self._world.database.flows.rows.values(), key=lambda f: f.id)
        ended = [(f.id, ()) for f in flows if f.state in _RETRIED]
        failed = [
            (flow.id, (row.id,))
            for flow in flows
            for row in self.members(flow.id).values()
            if row.replaced_by is None and row.state in _BAD
        ]
        chosen = (where % 3 and ended) or failed or ended
        if chosen:
            flow_id, jobs = chosen[where % len(chosen)]
            self._world.as_operator(
                lambda store: self._attempt(lambda: store.retry_flow(flow_id, jobs))
            )

    def approve(self, where: int) -> None:
        """Approve the member of some external step whose turn it is."""
        database = self._world.database
        waiting = [
            job
            for flow in database.flows.rows.values()
            for step in flow.steps
            if database.steps[step].external
            for job in sorted(database.jobs.unended.get(step, ()))
        ]
        if waiting:
            job = waiting[where % len(waiting)]
            self._world.as_operator(
                lambda store: self._attempt(lambda: store.approve(job))
            )

    def _attempt(self, act: Callable[[], object]) -> None:
        """Do something; again, until it has succeeded or makes no sense."""
        while True:
            try:
                act()
            except UsageError:
                return  # Its turn has not come, or what comes after it runs.
            except JobpoolError:
                self._world.kernel.sleep(AGAIN_S)
            else:
                self._world.wake()
                return
