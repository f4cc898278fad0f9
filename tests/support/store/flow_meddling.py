"""Any flow of which people let jobs run again at any time, judged by the rules alone.

There is no account beside it: what each step has come to is compared with what follows
from its members and from the steps before it, as they are stored.
"""

import msgspec
from hypothesis import strategies as st

from jobpool.core.jobs.flow import ENDED_STEPS, StepState
from jobpool.core.rules.flows import Before, Next, opened
from jobpool.errors import UsageError
from jobpool.store.records.operating import Replay
from support.store.flow_model import flows
from support.store.flows import died, jobs_of, member, unfinished
from support.store.storing import lease, new_job, succeeded

BAD = ("dead", "quarantined", "canceled")
MEDDLING_MAX = 6


def meddle(store, clock, data):
    """Let a flow live as *data* draws it; assert that all of it ends, and as it should.

    Args:
        store: any, with one run.
        clock: the store's.
        data: of hypothesis.
    """
    life = _Life(store, clock, data)
    for _ in range(MEDDLING_MAX):
        life.go_on()
        life.let_run_again()
    life.end()
    life.check()


class _Life:
    """A flow whose jobs people let run again."""

    def __init__(self, store, clock, data):
        self.store, self.clock, self.draw = store, clock, data.draw
        flow, self.members = self.draw(flows())
        given = [
            member(n) for n, count in enumerate(self.members) for _ in range(count)
        ]
        self.id = store.enqueue_flow(flow, given).id
        self.running = []
        self.added = {}
        """How many members each job has added."""

    def go_on(self):
        """Let some members begin, and some end."""
        for _ in range(self.draw(st.integers(1, 6))):
            self._lease(self.draw(st.integers(0, 3)))
            if self.running:
                self._settle(self.draw(st.integers(0, len(self.running) - 1)))
            self.store.fold(self.draw(st.integers(1, 5)))
            self.clock.advance(1)

    def end(self):
        """Let all that may begin come to its end."""
        self._lease(3)
        while self.running:
            self._settle(-1)
            if not self.running:
                self._lease(3)
        while self.store.fold().is_short:
            pass

    def let_run_again(self):
        """Do what people do with jobs that have ended, one of them or several."""
        jobs = [
            job
            for number in range(len(self.members))
            for job in jobs_of(self.store, self.id, number)
            if job.finished_at_ms is not None
        ]
        if not jobs:
            return
        chosen = [self.draw(st.sampled_from(jobs)).id for _ in range(2)]
        how = self.draw(st.sampled_from(("jobs", "jobs", "flow", "revive", "replay")))
        if how == "revive":
            self.store.revive(chosen, BAD)
        elif how == "replay":
            self.store.replay([Replay(job_id=one, new=new_job()) for one in chosen])
        else:
            before = self.store.flow(self.id)
            try:
                self.store.retry_flow(self.id, chosen[:1] if how == "jobs" else ())
            except UsageError:
                assert self.store.flow(self.id) == before, "something was changed"

    def _lease(self, limit):
        for one in lease(self.store, limit=limit) if limit else ():
            number = self.store.flow_of(one.id).number
            steps = self.store.flow(self.id).steps
            step = steps[number]
            if step.hook is None:
                assert step.state is StepState.READY, f"step {number} is {step.state}"
                assert self._expected(steps, step) == Next(StepState.READY)
            self.running.append(one)

    def _settle(self, which):
        one = self.running.pop(which)
        count = self.draw(st.sampled_from((None, None, 0, 0, 0, 1)))
        if count is None:
            self.store.settle([died(one)])
            return
        self.added[one.id] = count
        added = (new_job(),) * count
        self.store.settle([msgspec.structs.replace(succeeded(one), added=added)])

    def _expected(self, steps, step):
        """Return what is to become of a step if its flow is not ending."""
        before = (
            Before(steps[number].state, steps[number].failed, when)
            for number, when in step.after
        )
        return opened(before, None)

    def check(self):
        """Assert that the flow has ended whole, and each step as it should."""
        detail = self.store.flow(self.id)
        assert unfinished(self.store, self.id) == []
        assert detail.row.finished_at_ms is not None, "nothing can finish the flow"
        for step in detail.steps:
            assert step.state in ENDED_STEPS
            self._check_members(step)
            if detail.row.ending is None and step.hook is None:
                self._check_end(step, self._expected(detail.steps, step))

    def _check_end(self, step, next_):
        """Assert that a step has ended as those before it, and its members, say.

        One that was skipped for the end of the flow has not failed, and stays so if
        what had failed before it is not retried.
        """
        if next_.state is StepState.READY:
            is_bad = any(step.jobs.get(state) for state in BAD)
            assert (step.state, step.failed) == (StepState.DONE, is_bad), step
        else:
            assert step.state is StepState.SKIPPED, step
            assert next_.failed or not step.failed, step

    def _check_members(self, step):
        """Assert that nothing is there twice, and nothing is missing."""
        newest = [
            job
            for job in jobs_of(self.store, self.id, step.number)
            if job.replaced_by is None
        ]
        added = sum(
            self.added.get(job.id, 0) for job in newest if job.state == "succeeded"
        )
        assert len(newest) == self.members[step.number] + added, step
