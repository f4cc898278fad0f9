"""`TaskResult`: what is known of a job, in Django's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from jobpool import errors
from jobpool.core.jobs.job import FINISHED, Attempt, Job, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.integrations.django.compat import TaskError, TaskResult, TaskResultStatus

_DEATHS = {
    Outcome.TIMED_OUT: errors.JobTimedOut,
    Outcome.STALLED: errors.JobTimedOut,
    Outcome.OUT_OF_MEMORY: errors.JobOutOfMemory,
}
"""What an attempt that has raised nothing is said to have raised; else `JobCrashed`."""
UNKNOWN_WORKER = "unknown"
"""For an attempt of which nothing is stored: it was snoozed, say, and charged to
nobody."""


def task_result(
    job: Job,
    task: Any,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    *,
    alias: str,
    attempts: Sequence[Attempt] = (),
    value: Any = None,
) -> Any:
    """Return the `TaskResult` of a job.

    Args:
        job: as stored, decoded.
        task: its task, with the values of this job.
        arguments: those by position, and those by keyword.
        alias: of the backend.
        attempts: those that did not succeed, oldest first.
        value: what the task has returned.
    """
    args, kwargs = arguments
    began_ms = min((one.started_at_ms for one in attempts), default=job.started_at_ms)
    result = TaskResult(
        task=task,
        id=job.ref,
        status=status_of(job),
        enqueued_at=moment(job.created_at_ms),
        started_at=moment(began_ms),
        finished_at=moment(job.finished_at_ms) if job.state in FINISHED else None,
        last_attempted_at=moment(job.started_at_ms or began_ms),
        args=list(args),
        kwargs=dict(kwargs),
        backend=alias,
        errors=_errors(job, attempts),
        worker_ids=_workers(job, attempts),
    )
    object.__setattr__(result, "_return_value", value)  # as Django's own backends do
    return result


def unread_result(
    job_id: int,
    task: Any,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    *,
    alias: str,
) -> Any:
    """Return the `TaskResult` of a job of which only this is known."""
    args, kwargs = arguments
    return TaskResult(
        task=task,
        id=str(job_id),
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def status_of(job: Job) -> Any:
    """Return a job's state in Django's words.

    Django has no word for a job that is canceled or quarantined: it has failed. One
    that will be tried again is ready.
    """
    match job.state:
        case JobState.SUCCEEDED:
            return TaskResultStatus.SUCCESSFUL
        case JobState.DEAD | JobState.QUARANTINED | JobState.CANCELED:
            return TaskResultStatus.FAILED
        case JobState.LEASED if job.started_at_ms is not None:
            return TaskResultStatus.RUNNING
        case _:
            return TaskResultStatus.READY


def moment(time_ms: int | None) -> datetime | None:
    """Return a stored time, aware if ``USE_TZ`` is set."""
    if time_ms is None:
        return None
    aware = datetime.fromtimestamp(time_ms / 1000, UTC)
    return aware if settings.USE_TZ else timezone.make_naive(aware)


def task_error(
    outcome: Outcome | None, error_class: str | None, text: str | None
) -> Any:
    """Return the error of an attempt.

    Args:
        outcome: how it ended.
        error_class: as stored: builtins have no module. None: it has raised nothing.
        text: its traceback, or what is known instead.
    """
    if error_class is None:
        kind = _DEATHS.get(outcome or Outcome.CRASHED, errors.JobCrashed)
        error_class = f"{kind.__module__}.{kind.__qualname__}"
    elif "." not in error_class:
        error_class = f"builtins.{error_class}"
    return TaskError(exception_class_path=error_class, traceback=text or "")


def _errors(job: Job, attempts: Sequence[Attempt]) -> list[Any]:
    found = [
        task_error(one.outcome, one.error_class, one.traceback or one.reason)
        for one in attempts
    ]
    if not found and status_of(job) is TaskResultStatus.FAILED:
        path = f"{errors.__name__}.{errors.JobUnsuccessful.__qualname__}"
        reason = f"{job.state}: {job.reason or 'no attempt was made'}"
        found.append(TaskError(exception_class_path=path, traceback=reason))
    return found


def _workers(job: Job, attempts: Sequence[Attempt]) -> list[str]:
    known = {one.attempt: _worker(one) for one in attempts}
    if job.started_at_ms is not None or job.state in FINISHED:
        known.setdefault(job.attempt, _worker(job))
    return [known.get(n, UNKNOWN_WORKER) for n in range(1, job.attempt + 1)]


def _worker(one: Job | Attempt) -> str:
    if not one.supervisor:
        return UNKNOWN_WORKER
    return f"{one.supervisor}/{one.slot}" if one.slot else one.supervisor
