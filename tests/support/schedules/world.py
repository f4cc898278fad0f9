"""One schedule with its ticks and jobs: does what `plan` says, and checks each step.

What is due is found anew, by looking at every second; whether ticks may overlap is
judged by what is unfinished afterwards, not by the table.
"""

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.schedules.plan import plan
from jobpool.core.rules.schedules.policy import Missed, Overlap, Policy
from jobpool.core.rules.schedules.rule import Rule, jitter_of
from jobpool.core.rules.schedules.schedule import (
    FOREVER_MS,
    OpenTick,
    Progress,
    ScheduleState,
    TickState,
    progress_of,
)

SECOND_MS = 1000
UNFINISHED = (JobState.RUNNABLE, JobState.LEASED)


class Job:
    """A job of a tick."""

    def __init__(self, state=JobState.RUNNABLE):
        self.state = state
        self.attempt = 0


class World:
    """A store of one schedule, at a time that the test moves."""

    name = "world"

    def __init__(self, policy, rule, since_ms):
        self.policy = policy
        self.rule = rule
        self.since_ms = self.now_ms = since_ms
        self.last_ms = self.last_end_ms = self.paused_until_ms = None
        self.jitter_ms = jitter_of(rule, self.name)
        self.ticks = {}
        self.jobs = {}
        self.missed = 0
        self.was_paused = False
        self.last = None

    # What happens to it.

    def step(self, limit=10_000):
        """Do a step, and check it."""
        due, missed = self.due()
        done = self.last = plan(self.state(), self.now_ms, limit=limit)
        if done.pause:
            self.paused_until_ms = FOREVER_MS
            self.was_paused = True
        for nominal_ms in done.done:
            assert self.ticks[nominal_ms][0] is TickState.OPEN
            assert self.job(nominal_ms).state not in UNFINISHED
            self.ticks[nominal_ms][0] = TickState.DONE
        for job_id in done.cancel:
            self.cancel(self.jobs[job_id])
        for nominal_ms in done.skip:
            assert self.ticks[nominal_ms][:2] == [TickState.BUFFERED, False]
            self.ticks[nominal_ms][0] = TickState.SKIPPED
        for nominal_ms in done.start:
            assert self.ticks[nominal_ms][0] is TickState.BUFFERED
            self.open(nominal_ms, is_backfilled=self.ticks[nominal_ms][1])
        for nominal_ms, state, is_backfilled in done.write:
            if nominal_ms in self.ticks:
                continue
            self.ticks[nominal_ms] = [state, is_backfilled]
            if state is TickState.OPEN:
                self.open(nominal_ms, is_backfilled=is_backfilled)
        self.last_ms = done.last_ms
        self.missed += done.missed
        if limit >= len(due) and not done.pause:
            assert [tick.nominal_ms for tick in done.write] == due
            assert done.missed == missed
            assert not done.more
        self.check()

    def cancel(self, job):
        """Cancel a job: at once, unless it runs."""
        if job.state is JobState.RUNNABLE:
            self.end(job, JobState.CANCELED)

    def end(self, job, state=JobState.SUCCEEDED):
        """Let a job end."""
        job.state = state
        self.last_end_ms = self.now_ms

    def fail(self, job):
        """Let a job wait for a retry."""
        job.state = JobState.RUNNABLE
        job.attempt += 1

    def open(self, nominal_ms, *, is_backfilled):
        """Give a tick its job."""
        self.ticks[nominal_ms] = [TickState.OPEN, is_backfilled]
        assert nominal_ms not in self.jobs
        assert nominal_ms + self.jitter_ms <= self.now_ms
        self.jobs[nominal_ms] = Job()

    def backfill(self, nominal_ms):
        """Ask for a tick of the past."""
        self.ticks.setdefault(nominal_ms, [TickState.BUFFERED, True])

    # What it looks like.

    def job(self, nominal_ms):
        """Return a tick's job; its id is the tick's time."""
        return self.jobs[nominal_ms]

    def unfinished(self, *, backfilled=(True, False)):
        """Return the jobs that have not ended."""
        return [
            self.jobs[at]
            for at, (_, is_backfilled) in sorted(self.ticks.items())
            if is_backfilled in backfilled
            and at in self.jobs
            and self.jobs[at].state in UNFINISHED
        ]

    def times_of(self, state, *, backfilled):
        """Return the times of ticks in a state."""
        return sorted(
            at for at, tick in self.ticks.items() if tick == [state, backfilled]
        )

    def state(self):
        """Return it as `plan` sees it."""
        ticks = []
        for nominal_ms, (state, is_backfilled) in self.ticks.items():
            if state is TickState.BUFFERED:
                ticks.append(
                    OpenTick(nominal_ms, Progress.BUFFERED, None, is_backfilled)
                )
            elif state is TickState.OPEN:
                job = self.jobs[nominal_ms]
                progress = progress_of(job.state, job.attempt)
                ticks.append(OpenTick(nominal_ms, progress, nominal_ms, is_backfilled))
        return ScheduleState(
            name=self.name,
            rule=self.rule,
            policy=self.policy,
            since_ms=self.since_ms,
            last_ms=self.last_ms,
            last_end_ms=self.last_end_ms,
            paused_until_ms=self.paused_until_ms,
            ticks=tuple(ticks),
        )

    # What must be so.

    def due(self):
        """Return the times that a step must write, and how many it must count."""
        paused_ms = self.paused_until_ms or 0
        if self.now_ms < paused_ms:
            return [], 0
        mark_ms = max(self.since_ms, self.last_ms or 0, paused_ms - 1)
        every_ms, until_ms = self.rule.every_ms, self.now_ms - self.jitter_ms
        times = range(mark_ms // SECOND_MS * SECOND_MS, until_ms + 1, SECOND_MS)
        times = [
            at for at in times if at > mark_ms and (at - self.since_ms) % every_ms == 0
        ]
        late = [at for at in times if until_ms - at > 60 * SECOND_MS]
        on_time = [at for at in times if until_ms - at <= 60 * SECOND_MS]
        window_ms = until_ms - self.policy.catchup_window_s * SECOND_MS
        match self.policy.missed:
            case Missed.SKIP:
                kept = []
            case Missed.ONE:
                kept = [] if on_time else [at for at in late[-1:] if at >= window_ms]
            case Missed.ALL:
                recent = [at for at in late if at >= window_ms]
                kept = recent[-self.policy.catchup_max :]
        older = [at for at in late if not kept or at < kept[0]]
        return kept + on_time, len(older)

    def check(self):
        """Check what must be so after each step."""
        plain, filled = (
            self.unfinished(backfilled=(False,)),
            self.unfinished(backfilled=(True,)),
        )
        assert len(filled) <= 1
        waiting = self.times_of(TickState.BUFFERED, backfilled=False)
        to_fill = self.times_of(TickState.BUFFERED, backfilled=True)
        if self.policy.overlap is Overlap.ALLOW_ALL:
            assert not waiting
        else:
            assert len(plain) + len(filled) <= 1
        if self.policy.overlap is not Overlap.BUFFER_ALL:
            assert len(waiting) <= 1
        is_paused = (self.paused_until_ms or 0) > self.now_ms
        if (waiting or to_fill) and not is_paused:
            assert self.last.waits
            assert plain or filled or self.last.cancel
        if not is_paused:
            self.check_next()

    def check_next(self):
        """Check when the next tick is due."""
        mark_ms = max(self.since_ms, self.last_ms)
        first = (mark_ms - self.since_ms) // self.rule.every_ms + 1
        next_ms = self.since_ms + first * self.rule.every_ms + self.jitter_ms
        assert self.last.next_due_ms == (self.now_ms if self.last.more else next_ms)

    def check_account(self):
        """Check that each time was dealt with once: a tick, or counted as missed."""
        times = range(
            self.since_ms + self.rule.every_ms, self.last_ms + 1, self.rule.every_ms
        )
        assert len([at for at in times if at in self.ticks]) + self.missed == len(times)


__all__ = ["Policy", "Rule", "World"]
