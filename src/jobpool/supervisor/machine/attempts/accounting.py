"""Accounting for attempts that have ended: what becomes of their jobs, and when it was.

Theory of operation. A child says when its attempt began, by the monotonic clock that
all processes of a host share; it is believed within what was seen of it here: not
before the job was sent, not after its end was read. So an end that arrives late is
dated when it was. All times are by the clock that goes on while the host sleeps.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jobpool.core.jobs.job import JobState, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import Ending, account
from jobpool.sandbox.protocol.messages import Done
from jobpool.supervisor.machine.attempts.completions import Claims
from jobpool.supervisor.machine.attempts.progress import Beats
from jobpool.supervisor.machine.state import notices
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import Assigned, Slot
from jobpool.supervisor.machine.state.step import Desk


class Accounting:
    """Accounts for every end of an attempt that is no plain success (`successes`).

    Args:
        desk: shared with the rest of the core.
        pools: by name.
        beats: has what is still to be written of a running attempt.
    """

    def __init__(self, desk: Desk, pools: Mapping[str, Pool], beats: Beats) -> None:
        self._desk = desk
        self._pools = pools
        self._beats = beats
        self.claims = Claims(desk)

    def end(self, slot: Slot, job: Assigned, ending: Ending, done: Done | None) -> None:
        """Account for an attempt and give its settlement out."""
        desk, lease = self._desk, job.lease
        self._beats.write_last(job, succeeded=ending.outcome is Outcome.SUCCEEDED)
        held_s = desk.now_s - job.leased_s + desk.slept_s - job.slept_s
        now_ms = lease.leased_at_ms + round(held_s * 1000)
        accounted = account(lease, job.policy, ending, now_ms=now_ms)
        settlement = _timed(accounted, job, done, desk)
        waits = claimed = done is not None and done.completed
        if claimed:
            settlement = self.claims.hold(job, slot.name, settlement)
        elif settlement.unknown_for_ms is not None:
            waits = True
            self.claims.keep(job, slot.name, settlement)
        pool = self._pools[slot.pool]
        pool.took(lease.kind, [ending.evidence.duration_s or 0.0])
        pool.owe(lease.kind, settlement)
        desk.settle(lease, settlement)
        if settlement.state is JobState.PENDING:
            pool.pace.expect(desk.now_s + settlement.delay_ms / 1000)
        if output := ending.evidence.output:
            desk.say(notices.job_output(desk.now_ms, lease, slot.name, output))
        if not waits:
            desk.say(notices.attempt_ended(desk.now_ms, job, slot.name, settlement))


def of_done(job: Assigned, done: Done, desk: Desk) -> tuple[float, float]:
    """Return when an attempt began and ended, of which its child has told the end."""
    now_s = desk.now_s
    began_s = min(max(job.sent_s, done.began_s), now_s)
    ended_s = min(began_s + done.duration_s, now_s)
    return began_s + job.slept_s, ended_s + desk.slept_s


def _timed(
    settlement: Settlement, job: Assigned, done: Done | None, desk: Desk
) -> Settlement:
    """Return a settlement with the times of its attempt.

    Args:
        settlement: what came of the attempt.
        job: its job.
        done: what its child said of the end; None: it is dead as of now.
        desk: knows the time.
    """
    if done is None:
        ended_s = desk.now_s + desk.slept_s
        began_s = ended_s - (settlement.evidence.duration_s or 0.0)
    else:
        began_s, ended_s = of_done(job, done, desk)
    timed: Settlement = msgspec.structs.replace(
        settlement, began_s=began_s, ended_s=ended_s
    )
    return timed
