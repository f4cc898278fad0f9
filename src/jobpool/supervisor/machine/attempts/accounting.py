"""Accounting: what becomes of the job of an attempt that has ended, and when it ended.

Theory of operation. A child reports when its attempt began, by the monotonic clock that
all processes of a host share. The supervisor believes it within bounds: not before the
job was sent, not after the report was read. So an end that is read late has its true
time. All times are by the clock that goes on while the host sleeps.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jobpool.core.config.settings import KeepOutput
from jobpool.core.jobs.job import JobState, NewJob, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.jobs.trace import TraceContext
from jobpool.core.rules.lifecycle import Ending, account
from jobpool.sandbox.protocol.messages import Done
from jobpool.supervisor.machine.attempts.completions import Completions
from jobpool.supervisor.machine.attempts.progress import ProgressReports
from jobpool.supervisor.machine.state import notices
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.recent_ends import RecentEnds
from jobpool.supervisor.machine.state.slot import Assigned, Slot
from jobpool.supervisor.machine.state.step import Step
from jobpool.supervisor.machine.state.usage import Usage


class Accounting:
    """Accounts for every end of an attempt that is no plain success (`fast_path`).

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        progress: has what is still to be written of a running attempt.
        usage: counts what the attempts have used.
        ends: counts how they have ended.
    """

    def __init__(
        self,
        step: Step,
        pools: Mapping[str, Pool],
        progress: ProgressReports,
        usage: Usage,
        ends: RecentEnds,
    ) -> None:
        self._step = step
        self._pools = pools
        self._progress = progress
        self._usage = usage
        self.ends = ends
        self.completions = Completions(step)

    def end(self, slot: Slot, job: Assigned, ending: Ending, done: Done | None) -> None:
        """Account for an attempt and send its settlement to the store."""
        step, lease = self._step, job.lease
        if ending.throttled is not None and step.registry is not None:
            ending = step.registry.within_throttle_max(ending)
        self._progress.write_last(job, succeeded=ending.outcome is Outcome.SUCCEEDED)
        held_s = step.now_s - job.leased_s + step.slept_s - job.slept_s
        now_ms = lease.leased_at_ms + round(held_s * 1000)
        accounted = account(lease, job.policy, ending, now_ms=now_ms)
        settlement = _timed(accounted, job, done, step, slot.app_version)
        if done is not None and done.added and settlement.state is JobState.SUCCEEDED:
            added = tuple(_within(job.trace, one) for one in done.added)
            settlement = msgspec.structs.replace(settlement, added=added)
        if ending.evidence.output and step.registry is not None:
            settlement = _keeping(step.registry.keep_output(lease.kind), settlement)
        waits = claimed = done is not None and done.completed
        if claimed:
            settlement = self.completions.hold(job, slot.name, settlement)
        elif settlement.unknown_for_ms is not None:
            waits = True
            self.completions.keep(job, slot.name, settlement)
        pool = self._pools[slot.pool]
        is_throttled = ending.throttled is not None
        self.ends.ended(lease.kind, settlement.outcome, throttled=is_throttled)
        pool.took(lease.kind, [ending.evidence.duration_s or 0.0])
        if settlement.outcome is not None and settlement.unknown_for_ms is None:
            self._usage.ended(
                lease.kind,
                slot.pool,
                settlement.outcome,
                ending.evidence,
                job.limits.memory_bytes,
            )
        pool.owe(lease.kind, settlement)
        step.others_begin |= lease.laned or lease.step is not None
        step.settle(lease, settlement)
        if settlement.state is JobState.PENDING:
            pool.polling.expect(step.now_s + settlement.delay_ms / 1000)
        output = ending.evidence.output
        if output and lease.codec is None:
            step.report(notices.job_output(step.now_ms, job, slot.name, output))
        if not waits:
            step.report(notices.attempt_ended(step, job, slot.name, settlement))


def of_done(job: Assigned, done: Done, step: Step) -> tuple[float, float]:
    """Return when an attempt began and ended, whose end its child has reported."""
    now_s = step.now_s
    began_s = min(max(job.sent_s, done.began_s), now_s)
    ended_s = min(began_s + done.duration_s, now_s)
    return began_s + job.slept_s, ended_s + step.slept_s


def _within(trace: TraceContext | None, added: NewJob) -> NewJob:
    """Return a job that an attempt has added, in the attempt's trace."""
    if trace is None or added.trace is not None:
        return added
    traced: NewJob = msgspec.structs.replace(added, trace=trace.text)
    return traced


def _keeping(keep: KeepOutput, settlement: Settlement) -> Settlement:
    """Return a settlement of an attempt with output, of which that is stored or not."""
    kept: Settlement = settlement
    if keep is KeepOutput.ALL:
        kept = msgspec.structs.replace(settlement, keeps_output=True)
    elif keep is KeepOutput.NONE:
        evidence = msgspec.structs.replace(settlement.evidence, output=None)
        kept = msgspec.structs.replace(settlement, evidence=evidence)
    return kept


def _timed(
    settlement: Settlement,
    job: Assigned,
    done: Done | None,
    step: Step,
    app_version: str,
) -> Settlement:
    """Return a settlement with the times of its attempt, and what has run it.

    Args:
        settlement: what came of the attempt.
        job: its job.
        done: its child's report; None: the child died just now.
        step: knows the time.
        app_version: of the application in its child.
    """
    if done is None:
        ended_s = step.now_s + step.slept_s
        began_s = ended_s - (settlement.evidence.duration_s or 0.0)
    else:
        began_s, ended_s = of_done(job, done, step)
    ended_well = settlement.outcome is Outcome.SUCCEEDED  # and leaves no attempt's row
    timed: Settlement = msgspec.structs.replace(
        settlement,
        began_s=began_s,
        ended_s=ended_s,
        app_version=None if ended_well else app_version or None,
    )
    return timed
