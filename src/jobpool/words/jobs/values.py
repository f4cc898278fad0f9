"""What is read off a stored job. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from jobpool.core.jobs.job import Job, JobState


def decoded(text: bytes | None) -> Any:
    """Decode stored JSON; what is not JSON is shown as text."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return text.decode("utf-8", "replace")


def running_s(job: Job, now_ms: int) -> float | None:
    """Return for how long an attempt runs by now; None: none does, or just began."""
    if job.state is not JobState.LEASED or job.started_at_ms is None:
        return None
    return max(0.0, (now_ms - job.started_at_ms) / 1000)


def has_result(job: Job) -> bool:
    """Say whether a job has a result, be it null."""
    return job.state is JobState.SUCCEEDED and not job.is_erased
