"""Reads the options of ``handler.options(...)``, for one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from jobpool.client.declare.declaration import positive_s
from jobpool.client.declare.retry import checked_count
from jobpool.core.application.handler_spec import HandlerSpec, check_pool
from jobpool.core.jobs.job import (
    POSTPONE_MAX_MS,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TIME_MAX_MS,
    Debounce,
    NewJob,
    OnConflict,
)
from jobpool.core.jobs.trace import read_trace
from jobpool.core.rules.quotas.lanes import lane_id
from jobpool.core.units import (
    DurationLike,
    SizeLike,
    duration_s,
    show_duration,
    size_bytes,
)
from jobpool.errors import ConfigError, UsageError

TEXT_MAX = 255
"""Most characters of a key, a unique text or a tenant."""


_EXAMPLE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_ONLY_POSTPONED = "postpone_max is only for on_conflict='postpone'"
NEVER_BEGINS = (
    "expires_in is not longer than run_in, so the job would be canceled before it may "
    "begin; both count from now: make expires_in longer"
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one job, read."""

    delay_ms: int = 0
    run_at_ms: int | None = None
    expires_in_ms: int | None = None
    priority: int | None = None
    """None: its options do not say; 0, or that of its flow."""
    key: str | None = None
    unique: str | None = None
    debounce: Debounce | None = None
    tenant: str | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    pool: str | None = None
    trace: str | None = None
    connection: Any = None

    def new_job(
        self,
        spec: HandlerSpec,
        payload: bytes,
        codec: str | None = None,
        values: Mapping[str, str] | None = None,
    ) -> NewJob:
        """Return the job to be stored.

        Args:
            spec: of its handler.
            payload: its arguments, encoded.
            codec: the one that has encoded them.
            values: what quotas count it by; None: nothing.
        """
        pool = self.pool or spec.pool
        priority = self.priority or 0
        job = NewJob(
            kind=spec.kind,
            pool=pool,
            payload=payload,
            priority=priority,
            delay_ms=self.delay_ms,
            run_at_ms=self.run_at_ms,
            expires_in_ms=self.expires_in_ms,
            key=self.key,
            unique=self.unique,
            tenant=self.tenant,
            max_attempts=self.max_attempts,
            timeout_s=self.timeout_s,
            memory_bytes=self.memory_bytes,
            codec=codec,
        )
        if self.debounce is not None:
            job = replace(job, debounce=self.debounce)
        if self.trace is not None:
            job = replace(job, trace=self.trace)
        if not spec.needs and spec.concurrency is None:
            return job
        lane = lane_id(pool, spec.kind, priority, self.tenant, values or {})
        # Not above: Python makes a dict of more than 15 keywords before it calls.
        return replace(job, quota_values=values, lane=lane)


DEFAULT = Options()


def read_options(
    *,
    run_in: DurationLike | None = None,
    run_at: datetime | float | None = None,
    expires_in: DurationLike | None = None,
    priority: int | None = None,
    key: str | None = None,
    unique: str | None = None,
    unique_until: Literal["start", "finish"] | None = None,
    on_conflict: Literal["keep", "replace", "postpone"] | None = None,
    postpone_max: DurationLike | None = None,
    tenant: str | None = None,
    max_attempts: int | None = None,
    timeout: DurationLike | None = None,
    memory: SizeLike | None = None,
    pool: str | None = None,
    trace: str | None = None,
    connection: Any = None,
) -> Options:
    """Return the options as the store needs them.

    Raises:
        UsageError: a value is out of range, or two contradict each other; the message
            names the option.
    """
    if run_in is not None and run_at is not None:
        raise UsageError("run_in and run_at are both given; give one of them")
    try:
        delay_ms = 0 if run_in is None else round(duration_s(run_in, "run_in") * 1000)
        expires_in_ms = _positive_ms(expires_in)
        if expires_in_ms is not None and expires_in_ms <= delay_ms:
            raise UsageError(NEVER_BEGINS)
        unique = checked_text(unique, "unique")
        debounce = read_debounce(
            unique_until,
            on_conflict,
            postpone_max,
            unique=unique,
            key=key,
            run_in_ms=None if run_in is None else delay_ms,
        )
        return Options(
            delay_ms=delay_ms,
            run_at_ms=None if run_at is None else moment_ms(run_at, "run_at"),
            expires_in_ms=expires_in_ms,
            priority=checked_priority(priority),
            key=checked_text(key, "key"),
            unique=unique,
            debounce=debounce,
            tenant=checked_text(tenant, "tenant"),
            max_attempts=checked_count(max_attempts, "max_attempts"),
            timeout_s=positive_s(timeout, "timeout"),
            memory_bytes=None if memory is None else size_bytes(memory, "memory"),
            pool=None if pool is None else check_pool(_text(pool, "pool")),
            trace=None if trace is None else _checked_trace(trace),
            connection=connection,
        )
    except ConfigError as exc:
        raise UsageError(str(exc)) from None


def read_debounce(
    unique_until: str | None,
    on_conflict: str | None,
    postpone_max: DurationLike | None,
    *,
    unique: str | None,
    key: str | None,
    run_in_ms: int | None,
) -> Debounce | None:
    """Return how a job shares its unique text; None: as usual.

    Args:
        unique_until: ``"start"`` or ``"finish"``; None: finish.
        on_conflict: ``"keep"``, ``"replace"`` or ``"postpone"``; None: keep.
        postpone_max: only with postpone; None: a minute.
        unique: the text.
        key: the job's idempotency key, with which this does not go.
        run_in_ms: how much later it is due; None: that was not given.

    Raises:
        ConfigError, UsageError: a value is wrong, or two contradict each other.
    """
    if unique_until is None and on_conflict is None:
        if postpone_max is not None:
            raise UsageError(_ONLY_POSTPONED)
        return None
    if unique is None:
        raise UsageError(
            "unique_until and on_conflict say what happens to jobs with the same "
            "unique text; give unique= too"
        )
    if key is not None:
        raise UsageError(
            "unique_until and on_conflict do not go with key=: a key stands for one "
            "job with its arguments; leave one of them out"
        )
    until = _one_of(unique_until or "finish", ("start", "finish"), "unique_until")
    action = OnConflict(
        _one_of(on_conflict or "keep", tuple(OnConflict), "on_conflict")
    )
    most_ms = POSTPONE_MAX_MS
    if action is OnConflict.POSTPONE:
        if postpone_max is not None:
            most_ms = round(duration_s(postpone_max, "postpone_max") * 1000)
        _check_postponed(run_in_ms, most_ms)
    elif postpone_max is not None:
        raise UsageError(_ONLY_POSTPONED)
    debounce = Debounce(action, until == "start", most_ms)
    return None if debounce == Debounce() else debounce


def _check_postponed(run_in_ms: int | None, most_ms: int) -> None:
    if not run_in_ms:
        raise UsageError(
            "on_conflict='postpone' needs run_in: how long after the last of several "
            "calls the job is due"
        )
    if run_in_ms > most_ms:
        raise UsageError(
            f"run_in ({show_duration(run_in_ms / 1000)}) is longer than postpone_max "
            f"({show_duration(most_ms / 1000)}), after which the job is not postponed "
            "any more; make postpone_max longer"
        )


def _one_of(value: str, choices: Sequence[str], what: str) -> str:
    if value not in choices:
        known = ", ".join(repr(str(one)) for one in choices)
        raise UsageError(f"{what}: expected one of {known}, got {value!r}")
    return value


def _checked_trace(value: str) -> str:
    found = read_trace(_text(value, "trace"))
    if found is None:
        raise UsageError(
            f"trace: expected W3C's traceparent, such as '{_EXAMPLE}', and after a "
            f"space the tracestate, if there is one; got {value[:80]!r}"
        )
    return found.text


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{what}: expected text, got {type(value).__name__}")
    return value


def _positive_ms(value: DurationLike | None) -> int | None:
    seconds = positive_s(value, "expires_in")
    return None if seconds is None else max(1, round(seconds * 1000))


def moment_ms(value: datetime | float, what: str) -> int:
    """Return a moment in milliseconds since 1970.

    Raises:
        UsageError: it is no moment, out of range, or has no time zone.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UsageError(
                f"{what}: this datetime has no time zone; make it aware, for example "
                "with .astimezone() or tzinfo=timezone.utc"
            )
        seconds = value.timestamp()
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(
            f"{what}: expected an aware datetime or Unix seconds, got "
            f"{type(value).__name__}"
        )
    else:
        seconds = value
    # One second more, since the last second of a datetime has a fraction.
    if not 0 <= seconds <= TIME_MAX_MS / 1000 + 1:
        raise UsageError(
            f"{what} is out of range; expected a moment from 1970 to the end of year "
            "9999, UTC"
        )
    return min(round(seconds * 1000), TIME_MAX_MS)


def checked_priority(value: int | None) -> int | None:
    """Return a priority, or None.

    Raises:
        UsageError: it is no whole number, or out of range.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(
            f"priority: expected a whole number, got {type(value).__name__}"
        )
    if not PRIORITY_MIN <= value <= PRIORITY_MAX:
        raise UsageError(
            f"priority is out of range; expected {PRIORITY_MIN} to {PRIORITY_MAX}, "
            "higher is more important"
        )
    return int.__int__(value)  # for an IntEnum, say


def checked_text(value: str | None, what: str) -> str | None:
    """Return a key, a unique text or a tenant, or None.

    Raises:
        UsageError: it is no text, too long, or cannot be stored.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise UsageError(f"{what}: expected text, got {type(value).__name__}")
    value = str.__str__(value)  # for a StrEnum, say
    if not 1 <= len(value) <= TEXT_MAX:
        raise UsageError(f"{what}: {len(value)} characters; expected 1 to {TEXT_MAX}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{what}: half a surrogate pair is not valid Unicode text"
        ) from None
    if "\0" in value:
        raise UsageError(f"{what}: a NUL character is not allowed")
    return value
