"""What is said of a job in one line of a list. Pure."""

from __future__ import annotations

import msgspec

from jobpool.core.jobs.job import Job, JobState
from jobpool.core.safe_text import one_line
from jobpool.words.figures import ago
from jobpool.words.jobs.values import decoded, running_s

_PROGRESS_MAX = 60
"""Characters of a handler's progress shown in its job's line."""


def is_running(job: Job) -> bool:
    """Say whether an attempt runs, or is about to."""
    return job.state is JobState.LEASED


def ran_s(job: Job, now_ms: int) -> float | None:
    """Return how long its last attempt ran, or has been running."""
    return running_s(job, now_ms) if is_running(job) else job.duration_s


def memory_bytes(job: Job) -> int | None:
    """Return the memory of its last attempt: now, if it runs, else at most."""
    return job.rss_bytes if is_running(job) else job.peak_rss_bytes


def progress_words(job: Job) -> str:
    """Return what the handler reports; a number from 0 to 1 as a percentage.

    A text stands as it is, and so do names with a number or a text each: ``done 3``.
    """
    if job.progress is None:
        return ""
    value = decoded(job.progress)
    if isinstance(value, float) and 0 <= value <= 1:
        return f"progress {value:.0%}"
    if isinstance(value, str):
        text = value
    elif isinstance(value, dict) and all(map(_is_plain, value.values())):
        text = ", ".join(f"{name} {one}" for name, one in value.items())
    else:
        text = msgspec.json.encode(value).decode()
    return f"progress {one_line(text, _PROGRESS_MAX)}"


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def news(job: Job, now_ms: int) -> str:
    """Return when it runs next, then the reason for its state."""
    reason = job.reason or job.error_class or ""
    if job.replaced_by is not None:
        return "; ".join(filter(None, (f"replaced by job {job.replaced_by}", reason)))
    if is_running(job):
        before = f"before: {reason}" if reason else ""
        return "; ".join(filter(None, (progress_words(job), before)))
    if job.state is JobState.PENDING:
        due = (
            ago(job.run_at_ms, now_ms)
            if job.run_at_ms > now_ms
            else "as soon as it can"
        )
        return "; ".join(filter(None, (f"{'again ' * bool(job.attempt)}{due}", reason)))
    return reason
