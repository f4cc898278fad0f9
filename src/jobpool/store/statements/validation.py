"""What a store accepts from a producer, and how values are clamped to what it can hold.

The same for every database, so that none refuses a job that another accepts.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from jobpool.core.application.codec import NAME as CODEC_NAME
from jobpool.core.application.handler_spec import NAME, POOL_NAME
from jobpool.core.jobs.flow import NewFlow
from jobpool.core.jobs.job import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    TIME_MAX_MS,
    Debounce,
    NewJob,
    OnConflict,
)
from jobpool.core.jobs.trace import TRACE_MAX, read_trace
from jobpool.core.jobs.uniform_batch import payloads_of, representatives
from jobpool.errors import KeyConflict, UsageError

TEXT_MAX = 255
"""Longest key, unique text or tenant, in characters."""
VALUES_MAX = 100
"""Most values by which the quotas of a job count it."""
COUNT_MAX = 2**31 - 1
"""The highest attempt or budget counter of a job; counters stop there."""
ID_MAX = 2**63 - 1
MAX_ATTEMPTS_MAX = 2**31
MEMORY_MAX_BYTES = 2**60
KIB = 1024
COMPARED_BYTES = 2**21
"""About how many bytes of payloads one refusal gives back, to be compared."""
_CODE_MIN, _CODE_MAX = -(2**31), 2**31 - 1
_DURATION_MAX_S = TIME_MAX_MS / 1000
_WAIT_MAX_MS = 100 * 365 * 86_400_000


def check_new_jobs(jobs: Sequence[NewJob], now_ms: int | None) -> None:
    """Refuse jobs that no store could hold or no supervisor could run.

    Args:
        jobs: all jobs of one call; one bad job refuses them all.
        now_ms: the store's clock; None: this machine's is good enough to check for
            the end of the calendar.

    Raises:
        UsageError: names the job, the field, and what was expected.
    """
    if now_ms is None:
        now_ms = time.time_ns() // 10**6
    have_payloads = {bytes}.issuperset(map(type, payloads_of(jobs)))
    checked = representatives(jobs) if have_payloads else jobs
    for index, job in enumerate(checked):
        complaint = _complaint(job, now_ms)
        if complaint:
            which = f"job {index} of {len(jobs)}: " if len(jobs) > 1 else ""
            raise UsageError(f"{which}{complaint}; nothing was enqueued")


def unfit_for_flow(job: NewJob) -> str | None:
    """Say what keeps a job from being a member of a flow; None: nothing."""
    if job.key is not None or job.unique is not None or job.debounce is not None:
        return "a member has no key= and no unique= of its own: its flow has a key"
    if job.run_at_ms is not None:
        return (
            "a member's time is counted from when the steps before it have ended, so "
            "that it cannot be absolute; give delay="
        )
    return None


def check_added(jobs: Sequence[NewJob], now_ms: int | None) -> None:
    """Refuse what cannot be added to a step, otherwise as `check_new_jobs`."""
    check_new_jobs(jobs, now_ms)
    for job in jobs:
        if problem := unfit_for_flow(job):
            raise UsageError(f"{job.kind}: {problem}; nothing was added")


def check_new_flow(flow: NewFlow) -> None:
    """Refuse a flow whose texts or times no store could hold.

    Raises:
        UsageError: names the field, and what was expected.
    """
    for name, text in (("name", flow.name), ("key", flow.key), ("tenant", flow.tenant)):
        if not (_is_text(text) or (text is None and name != "name")):
            raise UsageError(
                f"flow: {name}: expected 1 to {TEXT_MAX} characters of text without "
                "NUL; nothing was stored"
            )
    for step in flow.steps:
        if not _is_text(step.name):
            raise UsageError(
                f"step {step.number}: name: expected 1 to {TEXT_MAX} characters of "
                "text without NUL; nothing was stored"
            )
        if step.timeout_ms is not None and not _is_int(
            step.timeout_ms, 1, _WAIT_MAX_MS
        ):
            raise UsageError(
                f"step {step.number}: timeout_ms: expected 1 to {_WAIT_MAX_MS}; "
                "nothing was stored"
            )


def key_conflict(
    conflicts: Iterable[tuple[NewJob, int, bytes | None, str | None]],
) -> KeyConflict:
    """Return the error for jobs whose keys are held by others, as far as is known.

    Args:
        conflicts: each job; the id of the holder, or 0: an earlier job of the call; its
            payload and its codec. The first one is named.
    """
    (job, job_id, _, held_codec), *_ = conflicts = list(conflicts)
    who = f"job {job_id}" if job_id else "an earlier job of this call"
    used = f"key: {job.kind} has used this idempotency key for {who}"
    if job.codec is None and held_codec is None:
        return KeyConflict(
            f"{used} with other arguments; use another key, or the same arguments. "
            "Nothing was enqueued",
            job_id,
        )
    encoded: list[tuple[int, bytes, str | None, bytes]] = []
    size_bytes = 0
    for one, holder_id, held, codec in conflicts:
        if one.codec is not None and held is not None:
            encoded.append((holder_id, held, codec, one.payload))
            size_bytes += len(held) + len(one.payload)
        if size_bytes > COMPARED_BYTES:
            break
    return KeyConflict(
        f"{used}, and encoded arguments cannot be compared here; use another key, or "
        "enqueue it in an application that has the codec, and not from a strict pool. "
        "Nothing was enqueued",
        job_id,
        encoded,
    )


def _complaint(job: NewJob, now_ms: int) -> str | None:
    if not _is_name(job.kind, NAME):
        return "kind: expected a name such as 'shop.thumbnail'"
    if not _is_name(job.pool, POOL_NAME):
        return "pool: expected a name such as 'cpu'"
    if type(job.payload) is not bytes:
        return f"payload: expected bytes, got {type(job.payload).__name__}"
    if not _is_int(job.priority, PRIORITY_MIN, PRIORITY_MAX):
        return (
            f"priority: expected a whole number from {PRIORITY_MIN} to {PRIORITY_MAX}"
        )
    return _time_complaint(job, now_ms) or _rest_complaint(job)


def _time_complaint(job: NewJob, now_ms: int) -> str | None:
    later_ms = max(0, TIME_MAX_MS - now_ms)
    if not _is_int(job.delay_ms, 0, later_ms):
        return "delay_ms: expected 0 or more, and a moment before the year 10000"
    if job.run_at_ms is not None and not _is_int(job.run_at_ms, 0, TIME_MAX_MS):
        return "run_at_ms: expected a moment from 1970 to the end of year 9999"
    if job.expires_in_ms is not None and not _is_int(job.expires_in_ms, 1, later_ms):
        return "expires_in_ms: expected 1 or more, and a moment before the year 10000"
    return None


def _rest_complaint(job: NewJob) -> str | None:
    for name, text in (
        ("key", job.key),
        ("unique", job.unique),
        ("tenant", job.tenant),
    ):
        if text is not None and not _is_text(text):
            return f"{name}: expected 1 to {TEXT_MAX} characters of text without NUL"
    if job.max_attempts is not None and not _is_int(
        job.max_attempts, 1, MAX_ATTEMPTS_MAX
    ):
        return "max_attempts: expected a whole number of 1 or more"
    if job.memory_bytes is not None and not _is_int(
        job.memory_bytes, 1, MEMORY_MAX_BYTES
    ):
        return "memory_bytes: expected a whole number of bytes, 1 or more"
    if job.timeout_s is not None and not _is_duration(job.timeout_s):
        return "timeout_s: expected a finite number of seconds over 0"
    return _mark_complaint(job) or _quota_complaint(job) or _debounce_complaint(job)


def _mark_complaint(job: NewJob) -> str | None:
    if job.codec is not None and not _is_name(job.codec, CODEC_NAME):
        return "codec: expected a name such as 'fernet'"
    if job.trace is not None and not _is_trace(job.trace):
        return "trace: expected a trace context, as W3C's traceparent has it"
    return None


def _debounce_complaint(job: NewJob) -> str | None:
    debounce = job.debounce
    if debounce is None:
        return None
    if not _is(debounce, Debounce) or not _is(debounce.on_conflict, OnConflict):
        return "debounce: expected a Debounce"
    if job.unique is None or job.key is not None:
        return "debounce: expected a unique text, and no key"
    if not _is_int(debounce.postpone_max_ms, 0, TIME_MAX_MS):
        return f"postpone_max_ms: expected a whole number from 0 to {TIME_MAX_MS}"
    return None


def _quota_complaint(job: NewJob) -> str | None:
    if job.quota_values is not None and not _are_values(job.quota_values):
        return "quota_values: expected texts by the paths of arguments"
    if job.lane is not None and not _is_int(job.lane, 1, ID_MAX):
        return f"lane: expected a whole number from 1 to {ID_MAX}"
    return None


# Records are not checked when they are created: a field may hold anything.
def _is_name(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind)


def _is_duration(value: object) -> bool:
    # An int may be too large for math.isfinite.
    return isinstance(value, (int, float)) and 0 < value <= sys.float_info.max


def _is_int(value: object, lowest: int, highest: int) -> bool:
    return type(value) is int and lowest <= value <= highest


def _is_text(value: object) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value) <= TEXT_MAX
        and clean_text(value) == value
    )


def _is_trace(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= TRACE_MAX
        and read_trace(value) is not None
        and clean_text(value) == value
    )


def _are_values(values: object) -> bool:
    return (
        isinstance(values, Mapping)
        and len(values) <= VALUES_MAX
        and all(
            isinstance(text, str) and clean_text(text) == text
            for pair in values.items()
            for text in pair
        )
        and all(len(text) <= TEXT_MAX for text in values.values())
    )


def is_tenant(name: object) -> bool:
    """Say whether a job may have this tenant."""
    return _is_text(name)


def is_id(job_id: int) -> bool:
    """Say whether a job may have this id."""
    return 0 < job_id <= ID_MAX


def storable(job_id: int) -> int:
    """Return an id that a database can compare; 0, which no job has, if it cannot."""
    return job_id if is_id(job_id) else 0


def clean_text(text: str | None) -> str | None:
    """Replace what a database cannot hold: NUL and lone surrogates."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    valid = text.encode("utf-8", "replace").decode("utf-8")
    return valid.replace("\0", "\ufffd")


def text_of(output: bytes | None) -> str | None:
    """Decode a process's output to text that every database can hold."""
    return None if output is None else clean_text(output.decode("utf-8", "replace"))


def kib_of(output: str) -> int:
    """Return how many whole KiB an output takes up; at least one."""
    return max(1, -(-len(output.encode()) // KIB))


def check_memory_bytes(value: int | None) -> None:
    """Check a memory limit that a job is given later; None: it is given none.

    Raises:
        UsageError: it is none, or more than a database can hold; nothing was changed.
    """
    if value is not None and not _is_int(value, 1, MEMORY_MAX_BYTES):
        raise UsageError(
            f"memory_bytes: expected a whole number of bytes, 1 to "
            f"{MEMORY_MAX_BYTES:,}, got {value!r}; nothing was changed"
        )


def fit_memory_bytes(value: int | None) -> int | None:
    """Clamp an observed size to what a database can hold."""
    return _fit(value, 0, MEMORY_MAX_BYTES)


def fit_code(value: int | None) -> int | None:
    """Clamp a signal or an exit code to 32 bits."""
    return _fit(value, _CODE_MIN, _CODE_MAX)


def fit_delay_ms(value: int) -> int:
    """Clamp a delay so that it ends neither in the past nor after the year 9999."""
    return _fit(value, 0, TIME_MAX_MS) or 0


def fit_duration_s(value: float | None) -> float | None:
    """Clamp a duration to 0 or more, and finite; None for NaN."""
    if value is None or value != value:  # noqa: PLR0124 - only NaN differs from itself
        return None
    if 0.0 <= value <= _DURATION_MAX_S:
        return float(value)
    return 0.0 if value < 0.0 else _DURATION_MAX_S


# A measured value must not keep a settlement from being written, whatever it is.
def _fit(value: float | None, lowest: int, highest: int) -> int | None:
    if value is None or value != value:  # noqa: PLR0124 - only NaN differs from itself
        return None
    if lowest <= value <= highest:
        return int(value)
    return lowest if value < lowest else highest


LIMITED = frozenset({"tenant", "quota"})
"""What a pause may be of that older code would lease past."""
STORE_PAUSE = ("store", "")
"""The pause of the whole store."""


def pausable(
    *,
    pool: str | None,
    kind: str | None,
    tenant: str | None,
    quota: str | None,
    whole_store: bool,
) -> tuple[str, str]:
    """Return what to pause or resume, as ``(what, name)`` of `PauseRow`.

    Raises:
        UsageError: not just one of them is given.
    """
    named = {"pool": pool, "kind": kind, "tenant": tenant, "quota": quota}
    given = [(what, name) for what, name in named.items() if name]
    if whole_store:
        given.append(STORE_PAUSE)
    if len(given) != 1:
        raise UsageError(
            "pause and resume take either a pool, a kind, a tenant or a quota, or the "
            "whole store; name one"
        )
    return given[0]


def pause_end_ms(now_ms: int, for_s: float | None) -> int | None:
    """Return when a pause ends; None: when it is resumed.

    Raises:
        UsageError: it would end before it begins, or never.
    """
    if for_s is None:
        return None
    if not 0 < for_s <= _DURATION_MAX_S:
        raise UsageError(
            "pause: expected a time longer than 0, such as 10m; nothing was paused"
        )
    return min(now_ms + max(1, round(for_s * 1000)), TIME_MAX_MS)
