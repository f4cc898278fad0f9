"""The moments of a running attempt: which comes next, and what each is for."""

from __future__ import annotations

from jobpool.supervisor.machine.state.durations import BRISK_S
from jobpool.supervisor.machine.state.slot import NEVER_S, Assigned, Slot

RECALL_AFTER_S = BRISK_S
"""Jobs sent ahead are taken back when they have waited in their child for so long."""
DUMP_S = 0.003
"""A stack dump takes under 1 ms even with the GIL held in C; then the kill."""
MEMORY_DUMP_S = 0.001
DOUBT_AFTER_S = 0.5
"""So long after it was sent, a child must have begun its first job: if it is not known
to have, it is recalled. A child that speaks falsely could else keep it waiting."""
NOTE_AFTER_S = 1.0
"""Attempts that last longer are noted in the store as started."""
SOFT_AGAIN_S = 0.05
"""A signal can be lost just before a blocking call; it is repeated, and raises once."""
DUMP_AHEAD_S = 0.1
DUMP_AHEAD_SHARE = 0.25
"""The stacks of what seems to run into its time limit are written so long before, and
at most in this last share of it: then even a child that waits for a busy core, and the
kill itself is not held up. Who ends in time after all has not noticed."""
REPORT_EVERY_S = 0.5
"""What is new of running attempts is written so often, of all of them at the same
moments: however many there are, it is one commit."""
CHECKPOINT_EVERY_S = 1.0


def write_at(job: Assigned) -> float:
    """Return when progress that waits is to be written."""
    if job.checkpoint is not None:
        return min(job.report_s, job.written_s + CHECKPOINT_EVERY_S)
    return job.report_s


def next_write_s(now_s: float) -> float:
    """Return when what is reported now is written, with that of other jobs."""
    return (now_s // REPORT_EVERY_S + 1) * REPORT_EVERY_S


def dump_at(began_s: float, timeout_s: float) -> float:
    """Return when the stacks of an attempt are to be written."""
    return began_s + timeout_s - min(DUMP_AHEAD_S, DUMP_AHEAD_SHARE * timeout_s)


def recall_at(slot: Slot) -> float:
    """Return when what the child has not begun is to be taken back."""
    if slot.recalling:
        return NEVER_S
    if len(slot.queue) > 1:
        return slot.recall_s
    job = slot.queue[0]
    if job.begun or job.started_s is None:
        return NEVER_S
    return max(job.started_s + DOUBT_AFTER_S, slot.recall_s)


def next_moment(slot: Slot, now_s: float) -> float:
    """Return when a busy slot's running attempt next needs attention."""
    job = slot.queue[0]
    began_s = job.started_s if job.started_s is not None else now_s
    limits = job.limits
    silent_s = limits.heartbeat_timeout_s
    return min(
        job.soft_s,
        write_at(job),
        began_s + limits.timeout_s,
        NEVER_S if silent_s is None else job.beat_s + silent_s,
        recall_at(slot),
        NEVER_S if job.dumped else dump_at(began_s, limits.timeout_s),
        NEVER_S if job.noted else began_s + NOTE_AFTER_S,
    )
