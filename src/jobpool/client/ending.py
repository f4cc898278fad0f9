"""Waiting for a job's end, and telling what it was."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobpool.core.clock import Clock, SystemClock
from jobpool.core.job import FINISHED, Job, JobState
from jobpool.core.printable import error_unsaid
from jobpool.core.quantity import show_duration
from jobpool.errors import JobNotFound, JobUnsuccessful, WaitTimeout

PAUSE_S_MIN = 0.001
PAUSE_S_MAX = 0.1
_PAUSE_GROWTH = 1.5
_ERROR_MAX = 500
"""Characters of a handler's own error text that the message repeats."""


def there_is(job: Job | None, url: str) -> Job:
    """Return a job as stored, if there is one.

    Raises:
        JobNotFound: no job has this id.
    """
    if job is None:
        raise JobNotFound(
            f"no job has this id in {url}; it may have been pruned, or be in another "
            "store"
        )
    return job


def wait_finished(
    read: Callable[[int], Job],
    job_id: int,
    timeout_s: float | None,
    *,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Job:
    """Return a job once it has finished, whatever its end.

    Looks again after 1 ms, then ever more rarely, up to ten times a second. It does
    not trust `Store.changed`, which tells each change to one thread only.

    Args:
        read: reads a job; raises JobNotFound if there is none.
        job_id: the job.
        timeout_s: wait at most so long; None: for ever; 0: look once.
        clock: measures the time.
        sleep: spends it.

    Raises:
        WaitTimeout: it has not finished in time; it goes on.
        JobNotFound: no job has this id (any more).
    """
    clock = clock or SystemClock()
    deadline_s = None if timeout_s is None else clock.monotonic_s() + timeout_s
    pause_s = PAUSE_S_MIN
    while True:
        left_s = None if deadline_s is None else deadline_s - clock.monotonic_s()
        job = read(job_id)
        if job.state in FINISHED:
            return job
        if left_s is not None and left_s <= 0:
            raise WaitTimeout(
                f"job {job_id} ({job.kind}) is still {job.shown_state} after "
                f"{show_duration(timeout_s or 0)}; it goes on: wait longer, or see "
                f"`jobpool show {job_id}` and `jobpool status`"
            )
        sleep(pause_s if left_s is None else min(pause_s, left_s))
        pause_s = min(pause_s * _PAUSE_GROWTH, PAUSE_S_MAX)


def successful(job: Job) -> Job:
    """Return a finished job if it succeeded.

    Raises:
        JobUnsuccessful: it did not; the message says how it ended.
    """
    if job.state is JobState.SUCCEEDED:
        return job
    error = error_unsaid(job.reason, job.error_class, job.error)
    cut = "…" if len(error) > _ERROR_MAX else ""
    ended = str(job.outcome) if job.outcome else "never ran"
    parts = (ended, job.reason, f"{error[:_ERROR_MAX]}{cut}")
    evidence = "; ".join(filter(None, parts))
    raise JobUnsuccessful(
        f"job {job.id} ({job.kind}) is {job.state} and has no result: {evidence}; "
        f"`jobpool show {job.id}` tells more",
        job_id=job.id,
        state=job.state.value,
        outcome=job.outcome.value if job.outcome else None,
        error_class=job.error_class,
    )
