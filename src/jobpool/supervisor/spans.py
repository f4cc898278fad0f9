"""When attempts began and ended, by the clock that passes while the host sleeps, too.

A child says when its attempt began, by the monotonic clock that all processes of a
host share; it is believed within what was seen of it here: not before the job was sent,
not after its end was read. So an end that arrives late is told as of when it was.
"""

from __future__ import annotations

import msgspec

from jobpool.core.job import Settlement
from jobpool.sandbox.frames import Done
from jobpool.supervisor.desk import Desk
from jobpool.supervisor.slot import Assigned


def of_done(job: Assigned, done: Done, desk: Desk) -> tuple[float, float]:
    """Return when an attempt began and ended, of which its child has told the end."""
    now_s = desk.now_s
    began_s = min(max(job.sent_s, done.began_s), now_s)
    ended_s = min(began_s + done.duration_s, now_s)
    return began_s + job.slept_s, ended_s + desk.slept_s


def timed(
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
