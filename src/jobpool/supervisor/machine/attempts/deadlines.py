"""The deadlines of a running attempt, and which of them comes next."""

from __future__ import annotations

from jobpool.supervisor.machine.state.durations import BRISK_S
from jobpool.supervisor.machine.state.slot import NEVER_S, Assigned, Slot

RECALL_AFTER_S = BRISK_S
"""Jobs sent ahead are recalled when they have waited in their child for this long."""
DUMP_S = 0.003
"""From stack dump to kill; a dump takes under 1 ms even with the GIL held in C."""
MEMORY_DUMP_S = 0.001
DOUBT_AFTER_S = 0.5
"""A child must have begun its first job this long after it was sent; if that is not
known, the job is recalled. Otherwise a child that lies could keep it waiting."""
NOTE_AFTER_S = 1.0
"""Attempts that take longer are noted in the store as started."""
SOFT_AGAIN_S = 0.05
"""A signal can be lost just before a blocking call; it is repeated, and raises once."""
DUMP_AHEAD_S = 0.1
DUMP_AHEAD_SHARE = 0.25
"""Stacks are written this long before the time limit, and at most in this last share
of it: early enough for a child that waits for a busy core, and the kill itself is not
delayed. An attempt that ends in time after all does not notice."""
REPORT_EVERY_S = 0.5
"""Between two writes of progress, at the same moments for all attempts: however many
there are, it is one commit."""
CHECKPOINT_EVERY_S = 1.0
WIND_UP_S = 0.5
WIND_UP_SHARE = 0.1
"""A handler that waits for a permit is told so long before its time limit, and at most
in this last share of it, that there is none: it can still end by itself."""


def write_at(job: Assigned) -> float:
    """Return when the waiting progress is to be written."""
    if job.checkpoint is not None:
        return min(job.report_s, job.written_s + CHECKPOINT_EVERY_S)
    return job.report_s


def next_write_s(now_s: float) -> float:
    """Return when progress reported now is written, with that of other jobs."""
    return (now_s // REPORT_EVERY_S + 1) * REPORT_EVERY_S


def dump_at(began_s: float, timeout_s: float) -> float:
    """Return when the stacks of an attempt are to be written."""
    return began_s + timeout_s - min(DUMP_AHEAD_S, DUMP_AHEAD_SHARE * timeout_s)


def waits_until(job: Assigned, now_s: float) -> float:
    """Return until when a handler may wait for permits.

    Well before a time limit ends its attempt: a wait is not charged to anybody.
    """
    timeout_s = job.limits.timeout_s
    began_s = now_s if job.started_s is None else job.started_s
    wind_up_s = min(WIND_UP_S, WIND_UP_SHARE * timeout_s)
    return min(began_s + timeout_s, job.soft_s) - wind_up_s


def recall_at(slot: Slot) -> float:
    """Return when jobs that the child has not begun are to be recalled."""
    if slot.recalling:
        return NEVER_S
    if len(slot.queue) > 1:
        return slot.recall_s
    job = slot.queue[0]
    if job.begun or job.started_s is None:
        return NEVER_S
    return max(job.started_s + DOUBT_AFTER_S, slot.recall_s)


def next_moment(slot: Slot, now_s: float) -> float:
    """Return the next deadline of a busy slot's running attempt."""
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
