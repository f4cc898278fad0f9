"""What is reported, in the words of Sentry: events of errors, and check-ins.

Of a job's arguments and of what its handler wrote nothing is in them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import PurePath
from signal import Signals
from typing import Any

from jobpool.core.events.figures import AttemptUnsuccessful, TickBegun, TickEnded
from jobpool.core.jobs.application_frame import Frame, frames
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.jobs.trace import read_trace
from jobpool.core.rules.schedules.rule import Rule

SLUG_MAX = 50
"""Characters of a monitor's name."""
_OPERATION = "queue.process"
_NO_ERROR = frozenset({Outcome.INTERRUPTED, Outcome.CANCELED})
_SET_ASIDE = frozenset({JobState.DEAD, JobState.QUARANTINED})
_ANYWHERE = frozenset({Outcome.TIMED_OUT, Outcome.STALLED, Outcome.OUT_OF_MEMORY})
"""They happen wherever a handler just is: stacks differ by chance, and all of one kind
are one issue, as deaths are."""
_MINUTE_MS = 60_000
_UNITS_MS: Mapping[str, int] = {
    "week": 7 * 24 * 60 * _MINUTE_MS,
    "day": 24 * 60 * _MINUTE_MS,
    "hour": 60 * _MINUTE_MS,
    "minute": _MINUTE_MS,
}


def is_reported(event: AttemptUnsuccessful, *, each: bool) -> bool:
    """Say whether an attempt's end is one for Sentry.

    Args:
        event: the attempt.
        each: also if its job is tried again.
    """
    if event.ended.state in _SET_ASIDE:
        return True
    return each and event.ended.outcome not in _NO_ERROR


def error_of(event: AttemptUnsuccessful, directory: str) -> dict[str, Any]:
    """Return an event of Sentry that tells of an attempt.

    Args:
        event: the attempt.
        directory: the application's: names of its files are relative to it.
    """
    ended, evidence = event.ended, event.evidence
    calls = frames(evidence.traceback, evidence.stack)
    raised = evidence.error_class
    module, _, name = (raised or "").rpartition(".")
    outcome = str(ended.outcome)
    exception: dict[str, Any] = {
        "type": name or outcome.title().replace("_", ""),
        "value": (evidence.error if raised else evidence.reason) or outcome,
        "module": module or None,
        "mechanism": {"type": "jobpool", "handled": False},
    }
    if calls:
        exception["stacktrace"] = {"frames": _frames(calls, directory)}
    found: dict[str, Any] = {
        "timestamp": event.at_ms / 1000,
        "platform": "python",
        "level": "error" if raised else "fatal",
        "logger": "jobpool",
        "transaction": ended.kind,
        "exception": {"values": [exception]},
        "tags": _known(
            {
                "jobpool.kind": ended.kind,
                "jobpool.pool": event.pool,
                "jobpool.outcome": outcome,
                "jobpool.state": str(ended.state),
                "jobpool.job": str(ended.id),
                "jobpool.tenant": ended.tenant,
                "jobpool.app_version": event.app_version,
            }
        ),
        "contexts": {"jobpool": _evidence(event), **_trace(event)},
    }
    if not raised or not calls or ended.outcome in _ANYWHERE:
        found["fingerprint"] = ["jobpool", ended.kind, raised or outcome]
    return found


def check_in_of(event: TickBegun | TickEnded) -> dict[str, Any] | None:
    """Return the check-in that tells of a tick; None: it is of the past."""
    tick = event.tick
    if tick.backfilled:
        return None
    found: dict[str, Any] = {
        "type": "check_in",
        "monitor_slug": slug_of(tick.name),
        "check_in_id": _digest(f"{tick.name} {tick.nominal_ms} {event.id}", 16),
        "status": "in_progress",
    }
    if isinstance(event, TickEnded):
        succeeded = event.state is JobState.SUCCEEDED
        found["status"] = "ok" if succeeded else "error"
        if event.duration_s is not None:
            found["duration"] = event.duration_s
    config = None if event.rule is None else _monitor(event.rule)
    if config is not None:
        found["monitor_config"] = config
    return found


def slug_of(schedule: str) -> str:
    """Return the name of a schedule's monitor: lower case, in what Sentry allows."""
    slug = re.sub(r"[^a-z0-9_-]+", "-", schedule.lower())
    if len(slug) <= SLUG_MAX:
        return slug
    return f"{slug[: SLUG_MAX - 9]}-{_digest(schedule, 4)}"


def _monitor(rule: Rule) -> Mapping[str, Any] | None:
    """Return how Sentry is to know when a schedule is due; None: it cannot say that."""
    margin = math.ceil(rule.jitter_ms / _MINUTE_MS)
    margins = {"checkin_margin": margin + 1} if margin else {}
    if rule.cron is not None:
        schedule = {"type": "crontab", "value": rule.cron}
        return {"schedule": schedule, "timezone": rule.tz, **margins}
    period_ms = rule.every_ms or 0
    for unit, unit_ms in _UNITS_MS.items():
        if period_ms and period_ms % unit_ms == 0:
            every = {"type": "interval", "value": period_ms // unit_ms, "unit": unit}
            return {"schedule": every, **margins}
    return None


def _frames(inner_first: Sequence[Frame], directory: str) -> list[dict[str, Any]]:
    return [
        _known(
            {
                "abs_path": call.path,
                "filename": _relative(call, directory),
                "function": call.function,
                "lineno": call.line,
                "context_line": call.code,
                "in_app": call.is_own,
            }
        )
        for call in reversed(inner_first)
    ]


def _relative(call: Frame, directory: str) -> str:
    """Return a name that does not change with where the code is installed."""
    path = PurePath(call.path)
    if directory and path.is_relative_to(directory):
        return str(path.relative_to(directory))
    parts = path.parts
    for at in range(len(parts) - 1, 0, -1):
        if parts[at - 1] in {"site-packages", "dist-packages"} or parts[
            at - 1
        ].startswith("python3"):
            return str(PurePath(*parts[at:]))
    return path.name


def _trace(event: AttemptUnsuccessful) -> dict[str, Any]:
    if event.trace is None:
        return {}
    cause = read_trace(event.cause)
    context = {
        "trace_id": event.trace.trace_id,
        "span_id": event.trace.span_id,
        "parent_span_id": None if cause is None else cause.span_id,
        "op": _OPERATION,
        "status": "internal_error",
    }
    return {"trace": _known(context)}


def _evidence(event: AttemptUnsuccessful) -> dict[str, Any]:
    ended, evidence = event.ended, event.evidence
    return _known(
        {
            "job": ended.id,
            "attempt": ended.attempt,
            "max_attempts": ended.max_attempts,
            "slot": ended.slot,
            "reason": evidence.reason,
            "signal": _signal(evidence.signal),
            "exit_code": evidence.exit_code,
            "duration_s": evidence.duration_s,
            "cpu_s": evidence.cpu_s,
            "timeout_s": ended.timeout_s,
            "peak_memory_bytes": evidence.peak_rss_bytes,
            "memory_bytes": ended.memory_bytes,
            "again_in_s": ended.delay_s,
            "see": f"jobpool show {ended.id}",
        }
    )


def _signal(number: int | None) -> str | None:
    if number is None:
        return None
    try:
        return Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()


def _known(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}
