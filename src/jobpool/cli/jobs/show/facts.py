"""What `jobpool show` says of a job, a line each. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from jobpool.core.application.codec import is_encoded, is_encoded_json
from jobpool.core.event_lines import iso_time
from jobpool.core.jobs.job import Job, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.policy import SNOOZED_MAX_S, SNOOZES_MAX
from jobpool.core.safe_text import unstated_error
from jobpool.core.units import show_duration
from jobpool.monitoring.looking.reading import Place, Seen
from jobpool.monitoring.looking.waits import what_next
from jobpool.store.records.runs import KindRecord
from jobpool.words.figures import ago, counted, seconds, size
from jobpool.words.jobs.attempts import counts, figures, throttled_words
from jobpool.words.jobs.values import decoded, has_result
from jobpool.words.quotas import wait_words
from jobpool.words.schedules import tick_words


def facts(seen: Seen, now: int) -> Iterator[tuple[str, str]]:
    """Yield what is said of a job: a name and a text.

    Args:
        seen: what was read of it.
        now: in milliseconds.
    """
    job, known = seen.job, seen.known
    error = _plain(job.error, job.codec)
    result = job.result if has_result(job) else None
    flow = seen.place.row if seen.place else None
    following = f"waits: {seen.waits}" if seen.waits else ""
    rows = [
        ("why", job.reason or ""),
        ("next", following or what_next(job, known, flow, now)),
        *(("quota", wait_words(one, now)) for one in seen.quotas),
        *seen.links,
        ("schedule", tick_words(seen.tick) if seen.tick else ""),
        ("flow", place_words(seen.place) if seen.place else ""),
        (
            "error",
            unstated_error(job.reason, job.error_class, error),
        ),
        ("pool", _place(job)),
        ("counts", counts(job, seen.attempts, known)),
        ("snoozes", _snoozes(job, now)),
        ("throttled", throttled_words(job)),
        ("debounced", _debounced(job)),
        ("limits", _limits(job, known)),
        ("observed", _observed(job)),
        ("progress", _json(job.progress, job.codec)),
        ("result", _json(result, job.codec)),
        *(
            (name, f"{iso_time(at)}  {ago(at, now)}" if at is not None else "")
            for name, at in (
                ("created", job.created_at_ms),
                ("run at", job.run_at_ms),
                ("started", job.started_at_ms),
                ("heartbeat", job.last_heartbeat_at_ms),
                ("finished", job.finished_at_ms),
            )
        ),
        ("options", _options(job)),
        ("ref", job.ref),
        ("codec", _codec(job)),
        ("read", _page(seen)),
    ]
    yield from ((name, text) for name, text in rows if text)


def place_words(place: Place) -> str:
    """Return where in a flow a job is: ``7, order, open; step 3``."""
    row, member = place.row, place.member
    retried = f" of generation {member.generation}" if row.generation > 1 else ""
    return (
        f"{row.id}, {row.name}, {row.state}; step {member.number}{retried}: "
        f"jobpool flows show {row.id}"
    )


def place_object(place: Place) -> dict[str, Any]:
    """Return where in a flow a job is, for ``--json``."""
    row, member = place.row, place.member
    return {
        "id": row.id,
        "ref": row.ref,
        "name": row.name,
        "key": row.key,
        "state": row.state,
        "step": member.number,
        "generation": member.generation,
        "after": list(member.before),
    }


def _page(seen: Seen) -> str:
    """Name the page of the manual that explains this, if one does."""
    job = seen.job
    if seen.quotas:
        return "jobpool manual flow-control"
    if seen.waits:
        return "jobpool manual questions"
    if job.state is JobState.SUCCEEDED:
        return ""
    if job.outcome is Outcome.OUT_OF_MEMORY:
        return "jobpool manual tuning"
    if job.state in (JobState.DEAD, JobState.QUARANTINED):
        return "jobpool manual retries"
    return ""


def _place(job: Job) -> str:
    slot = f"  slot {job.slot}" if job.slot else ""
    supervisor = f"  supervisor {job.supervisor}" if job.supervisor else ""
    return f"{job.pool}{slot}{supervisor}"


def _snoozes(job: Job, now: int) -> str:
    """Return how often a job has snoozed, and how often it may."""
    if not job.snoozes:
        return ""
    since = f"since {iso_time(job.snoozed_since_ms)} ({ago(job.snoozed_since_ms, now)})"
    return (
        f"{job.snoozes:,} of {SNOOZES_MAX:,} in a row, {since}, "
        f"for {show_duration(SNOOZED_MAX_S)} at most"
    )


def _debounced(job: Job) -> str:
    """Return how often enqueues with its unique text have changed a job."""
    counts = (("replaced", job.replacements), ("postponed", job.postponements))
    return ", ".join(
        f"{what} {counted(times, 'time')}" for what, times in counts if times
    )


def _limits(job: Job, known: KindRecord | None) -> str:
    timeout = job.timeout_s or (known.timeout_s if known else None)
    memory = job.memory_bytes or (known.memory_bytes if known else None)
    if timeout is None and memory is None:
        return ""
    return f"time {seconds(timeout) or '-'}  memory {size(memory) or '-'}"


def _observed(job: Job) -> str:
    if job.state is JobState.LEASED and job.rss_bytes is not None:
        return f"memory {size(job.rss_bytes)} now"
    return figures(job.duration_s, job.peak_rss_bytes, job.cpu_s)


def _options(job: Job) -> str:
    pairs: list[tuple[str, Any]] = [
        ("priority", job.priority or None),
        ("key", job.key),
        ("unique", job.unique),
        ("until", "start" if job.until_start else None),
        ("tenant", job.tenant),
        ("expires", iso_time(job.expires_at_ms)),
    ]
    return "  ".join(f"{name} {value}" for name, value in pairs if value is not None)


def _codec(job: Job) -> str:
    """Say where what is encoded can be read."""
    if job.codec is None:
        return ""
    return (
        f"{job.codec}; only its application reads what is encoded: "
        f"jobs.get({job.id}).info()"
    )


def _plain(text: str | None, codec: str | None) -> str | None:
    """Return a text, unless it is encoded."""
    return None if codec and is_encoded(text) else text


def _json(text: bytes | None, codec: str | None) -> str:
    if text is None or (codec and is_encoded_json(text)):
        return ""
    return msgspec.json.encode(decoded(text)).decode()
