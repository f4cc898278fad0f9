"""Stored records as the JSON objects that ``--json`` prints. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobpool.core.event_lines import iso_time
from jobpool.core.jobs.job import Attempt, Job
from jobpool.core.jobs.memory_trail import trail_of
from jobpool.store.records.quotas import QuotaWait
from jobpool.words.jobs.values import decoded, has_result, running_s


def attempt_object(attempt: Attempt, *, full: bool) -> dict[str, Any]:
    """Return one attempt; *full* adds what can be long, such as its stack."""
    short: dict[str, Any] = {
        "attempt": attempt.attempt,
        "outcome": attempt.outcome.value,
        "reason": attempt.reason,
        "signal": attempt.signal,
        "exit_code": attempt.exit_code,
        "peak_rss_bytes": attempt.peak_rss_bytes,
        "cpu_s": attempt.cpu_s,
        "duration_s": attempt.duration_s,
        "error_class": attempt.error_class,
        "error": attempt.error,
        "rule": attempt.rule,
        "supervisor": attempt.supervisor,
        "app_version": attempt.app_version,
        "slot": attempt.slot,
        "started_at": iso_time(attempt.started_at_ms),
        "finished_at": iso_time(attempt.finished_at_ms),
    }
    if full:
        short |= {
            "stack": attempt.stack,
            "output": attempt.output,
            "traceback": attempt.traceback,
            "memory_trail": trail_of(attempt.memory_trail),
        }
    return short


def job_object(
    job: Job,
    attempts: Sequence[Attempt],
    *,
    max_attempts: int | None,
    full: bool,
    now_ms: int,
) -> dict[str, Any]:
    """Return a job with its unsuccessful attempts.

    Args:
        job: as stored.
        attempts: oldest first.
        max_attempts: the kind's, for a job that has none of its own.
        full: with each attempt's stack, output, traceback and memory over time.
        now_ms: the time.
    """
    return {
        "id": job.id,
        "ref": job.ref,
        "kind": job.kind,
        "pool": job.pool,
        "state": job.shown_state,
        "attempt": job.attempt,
        "max_attempts": max_attempts if job.max_attempts is None else job.max_attempts,
        "failures": job.failures,
        "crashes": job.crashes,
        "interruptions": job.interruptions,
        "recoveries": job.recoveries,
        "snoozes": job.snoozes,
        "snoozed_since": iso_time(job.snoozed_since_ms),
        "throttles": job.throttles,
        "unfit_since": iso_time(job.unfit_since_ms),
        "outcome": job.outcome.value if job.outcome else None,
        "reason": job.reason,
        "error_class": job.error_class,
        "error": job.error,
        "erased": job.is_erased,
        "result": _result(job),
        "progress": decoded(job.progress),
        "created_at": iso_time(job.created_at_ms),
        "run_at": iso_time(job.run_at_ms),
        "expires_at": iso_time(job.expires_at_ms),
        "started_at": iso_time(job.started_at_ms),
        "finished_at": iso_time(job.finished_at_ms),
        "last_heartbeat_at": iso_time(job.last_heartbeat_at_ms),
        "running_s": running_s(job, now_ms),
        "rss_bytes": job.rss_bytes,
        "duration_s": job.duration_s,
        "cpu_s": job.cpu_s,
        "peak_rss_bytes": job.peak_rss_bytes,
        "timeout_s": job.timeout_s,
        "memory_bytes": job.memory_bytes,
        "cancel_requested": job.cancel_requested,
        "key": job.key,
        "unique": job.unique,
        "unique_until": "start" if job.until_start else "finish",
        "follows": job.follows,
        "followed_by": job.followed_by,
        "replacements": job.replacements,
        "postponements": job.postponements,
        "tenant": job.tenant,
        "codec": job.codec,
        "priority": job.priority,
        "supervisor": job.supervisor,
        "slot": job.slot,
        "replays": job.replays,
        "replaced_by": job.replaced_by,
        "attempts": [attempt_object(attempt, full=full) for attempt in attempts],
    }


def _result(job: Job) -> Any:
    return decoded(job.result) if has_result(job) else None


def wait_object(wait: QuotaWait) -> dict[str, Any]:
    """Return the same for ``--json``."""
    return {
        "quota": wait.quota,
        "value": wait.value,
        "why": wait.why,
        "used": wait.used,
        "concurrency": wait.cap,
        "held_by": list(wait.holders),
        "opens_at": iso_time(wait.opens_at_ms),
    }
