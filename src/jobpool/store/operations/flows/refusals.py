"""Why a flow is not retried; the same for all stores."""

from __future__ import annotations

from typing import NamedTuple

from jobpool.core.jobs.flow import RETRIED_MAX, StepState
from jobpool.core.jobs.job import JobState
from jobpool.errors import UsageError

_BEGUN = (StepState.READY, StepState.DONE)
_BAD = (JobState.DEAD, JobState.QUARANTINED, JobState.CANCELED)


class Given(NamedTuple):
    """A member that somebody has named."""

    id: int
    state: str
    replaced_by: int | None
    step: int
    step_state: str
    hook: str | None


def why_not(given: Given | None) -> str | None:
    """Return why a member that was named does not begin anew; None: it does."""
    if given is None:
        return "which is no job of it"
    if given.replaced_by is not None:
        return f"which job {given.replaced_by} has replaced"
    if given.hook is not None:
        return f"which is a hook's: `jobpool retry {given.id}` runs it again"
    if given.step_state not in _BEGUN:
        return (
            "whose step has not begun: retry what has failed before it"
            if given.step_state != StepState.CLOSED
            else f"whose step has not begun: `jobpool retry {given.id}` takes it back"
        )
    if given.state not in _BAD:
        return (
            f"which is {given.state}: only jobs that are dead, quarantined or canceled "
            "begin anew"
        )
    return None


def not_retried(flow_id: int, job_id: int, problem: str) -> UsageError:
    """Return the refusal of a job that somebody has named."""
    return UsageError(
        f"flow {flow_id} cannot be retried from job {job_id}, {problem}; nothing was "
        "changed"
    )


def canceling(flow_id: int) -> UsageError:
    """Return the refusal of a flow that is being canceled."""
    return UsageError(
        f"flow {flow_id} is being canceled: wait until it has ended, then retry it; "
        "nothing was changed"
    )


def running(flow_id: int, job_id: int) -> UsageError:
    """Return the refusal of a flow in which something runs that would begin anew."""
    return UsageError(
        f"flow {flow_id} cannot be retried: its job {job_id}, which comes after what "
        "would begin anew, runs: wait until it has ended, or cancel it; nothing was "
        "changed"
    )


def too_many(flow_id: int) -> UsageError:
    """Return the refusal of a retry that would take too long."""
    return UsageError(
        f"flow {flow_id} cannot be retried: more than {RETRIED_MAX:,} of its jobs "
        "would begin anew, which is the most at once: enqueue a new flow for what is "
        "left, or retry some of what has failed (--job). Nothing was changed"
    )


def unfinished(flow_id: int, job_id: int) -> UsageError:
    """Return the refusal of a flow with a member that has not ended."""
    return UsageError(
        f"flow {flow_id} has ended, but somebody lets its job {job_id} run again: wait "
        "until that has ended, or cancel it; nothing was changed"
    )


def erased(flow_id: int, job_id: int) -> UsageError:
    """Return the refusal of a flow with a member that cannot run again."""
    return UsageError(
        f"flow {flow_id} cannot be retried: its job {job_id} would run again, but was "
        "erased and has no arguments any more; nothing was changed"
    )


def damaged(flow_id: int) -> UsageError:
    """Return the refusal of a flow whose steps cannot be read."""
    return UsageError(
        f"flow {flow_id} cannot be retried: another program has damaged its steps, so "
        "that nobody knows what is to follow what; nothing was changed"
    )
