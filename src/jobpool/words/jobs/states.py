"""States as they are shown, and what each means in a few words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jobpool.core.jobs.job import JobState

RETRYABLE = "retryable"
STATES = (*(state.value for state in JobState), RETRYABLE)
"""As shown: ``retryable`` is a pending job that has been attempted."""
MEANINGS: Mapping[str, str] = {
    JobState.PENDING: "not due yet",
    RETRYABLE: "failed, and to be tried again",
    JobState.WAITING: "waits for what it depends on",
    JobState.RUNNABLE: "due, waits for a slot",
    JobState.LEASED: "runs, or runs next",
    JobState.SUCCEEDED: "has returned",
    JobState.DEAD: "failed, not tried again",
    JobState.QUARANTINED: "a poison pill, set aside",
    JobState.CANCELED: "canceled or expired",
}
