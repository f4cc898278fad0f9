"""What a row may hold, and how a damaged row is repaired. Pure.

Theory of operation. A database enforces its rules until it is written with another
tool, half of a backup is restored, or a disk returns wrong data. A damaged row must
affect its own job only. So a table says for every column of a job what it may hold, and
a row that holds anything else is *repaired*: each invalid field gets a valid value. A
job that has not ended is then set aside, as dead with that reason: what was asked for
is unknown. If the field is only informational and decides nothing, the job continues;
and a job that has ended stays as it ended.

Whole rows are not checked in normal operation. They are checked when a statement fails
because of one (`operations.repair`), when a value that is needed cannot be read, when
a queue is moved, and by a slow walk over the table (`Store.scrub`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from jobpool.core.jobs.job import (
    FINISHED,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TIME_MAX_MS,
    JobState,
)
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.core.rules.usage.sketch import Measure
from jobpool.errors import StoreRefused
from jobpool.store.statements.validation import (
    COUNT_MAX,
    MAX_ATTEMPTS_MAX,
    MEMORY_MAX_BYTES,
    TEXT_MAX,
)

Text = Annotated[str, Meta(max_length=TEXT_MAX)]
Priority = Annotated[int, Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)]
RunId = Annotated[str, Meta(pattern=r"\A[0-9A-Za-z_-][0-9A-Za-z_.-]{0,127}\Z")]
"""It names a directory, and must not reach outside of it."""
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Moment = Annotated[int, Meta(ge=0, le=TIME_MAX_MS)]
Token = Annotated[int, Meta(ge=0)]
Bytes = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
MaxAttempts = Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS_MAX)]
Timeout = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
Memory = Annotated[int, Meta(ge=1, le=MEMORY_MAX_BYTES)]
Code = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Flag = Annotated[int, Meta(ge=0, le=1)]

JOB: Mapping[str, Any] = {
    "id": int,
    "kind": Text,
    "pool": Text,
    "state": JobState,
    "priority": Priority,
    "key": Text | None,
    "unique_text": Text | None,
    "tenant": Text | None,
    "max_attempts": MaxAttempts | None,
    "timeout_s": Timeout | None,
    "memory_bytes": Memory | None,
    "attempt": Count,
    "reset_attempt": Count,
    "failures": Count,
    "crashes": Count,
    "interruptions": Count,
    "recoveries": Count,
    "snoozes": Count,
    "snoozed_since_ms": Moment | None,
    "created_at_ms": Moment,
    "run_at_ms": Moment,
    "expires_at_ms": int | None,
    "finished_at_ms": Moment | None,
    "token": Token | None,
    "completed_token": Token | None,
    "supervisor": str | None,
    "leased_at_ms": Moment | None,
    "cancel_requested": Flag,
    "slot": str | None,
    "started_at_ms": Moment | None,
    "last_heartbeat_at_ms": Moment | None,
    "outcome": Outcome | None,
    "reason": str | None,
    "error_class": str | None,
    "error": str | None,
    "duration_s": Seconds | None,
    "cpu_s": Seconds | None,
    "peak_rss_bytes": Bytes | None,
    "progress": bytes | None,
    "checkpoint": bytes | None,
    "codec": Text | None,
    "lane": int | None,
    "quota_values": str | None,
    "throttled": str | None,
    "step": int | None,
}
"""What each column of a job may hold, in the order in which `raw_jobs` returns them."""
BULK: Mapping[str, Any] = {"payload": bytes, "result": bytes | None}
"""A job's columns in tables of their own."""
ATTEMPT: Mapping[str, Any] = {
    **dict.fromkeys(("id", "job_id"), int),
    "attempt": Count,
    "token": Token,
    "outcome": Outcome,
    **dict.fromkeys(("rule", "reason", "error_class", "error"), str | None),
    "traceback": str | None,
    **dict.fromkeys(("signal", "exit_code"), Code | None),
    "peak_rss_bytes": Bytes | None,
    **dict.fromkeys(("cpu_s", "duration_s"), Seconds | None),
    **dict.fromkeys(("output", "stack", "supervisor", "slot"), str | None),
    **dict.fromkeys(("started_at_ms", "finished_at_ms"), Moment),
    **dict.fromkeys(("app_version", "memory_trail"), str | None),
}
"""What each column of an attempt may hold, in the table's order."""
_ATTEMPT_REPLACEMENTS: Mapping[str, Any] = {
    "outcome": Outcome.LOST,
    **dict.fromkeys(("attempt", "token", "started_at_ms", "finished_at_ms"), 0),
}
_INFORMATIONAL = frozenset(
    {
        "created_at_ms",
        "completed_token",
        "slot",
        "started_at_ms",
        "last_heartbeat_at_ms",
        "outcome",
        "reason",
        "error_class",
        "error",
        "duration_s",
        "cpu_s",
        "step",
        "peak_rss_bytes",
        "progress",
        "result",
        "lane",
        "quota_values",
        "throttled",
    }
)
"""Columns that do not decide what happens to a job."""
_REPLACEMENTS: Mapping[str, Any] = {
    "kind": "",
    "pool": "",
    "state": JobState.DEAD,
    **dict.fromkeys(("priority", "created_at_ms", "run_at_ms", "cancel_requested"), 0),
    **dict.fromkeys(("attempt", "reset_attempt", "snoozes"), 0),
    **dict.fromkeys(("failures", "crashes", "interruptions", "recoveries"), 0),
    **dict.fromkeys(("payload", "result"), b""),  # not JSON: cannot be mistaken for it
}
"""What replaces an invalid value, where that is not NULL."""
RUN: Mapping[str, Any] = {
    "id": RunId,
    **dict.fromkeys(("host", "boot_id"), str),
    **dict.fromkeys(("pid", "pid_namespace"), Token),
    **dict.fromkeys(("version", "pools"), str),
    **dict.fromkeys(("started_at_ms", "heartbeat_at_ms", "lease_until_ms"), Moment),
    **dict.fromkeys(("ended_at_ms", "leaving_at_ms", "died_at_ms"), Moment | None),
    "died_with_jobs": Count | None,
    "format": Count | None,
    **dict.fromkeys(("application", "app_version"), str | None),
    "renewals": Token | None,
    "limits": str | None,
}
"""What each column of a run may hold, in the order of `raw_runs`."""
_RUN_REPLACEMENTS: Mapping[str, Any] = {
    **dict.fromkeys(("host", "boot_id", "version"), ""),
    **dict.fromkeys(("pid", "pid_namespace"), 0),
    "pools": "{}",
    "format": 1,
    "renewals": 2**40,  # above any: less would look like a store that went back
}
_LEASE_AGAIN_MS = 60_000
"""A lease whose end cannot be read ends this much later: it is renewed before that."""
KIND: Mapping[str, Any] = {
    **dict.fromkeys(("kind", "run_id", "pool", "schema"), str),
    "timeout_s": Timeout,
    "memory_bytes": Memory,
    "max_attempts": MaxAttempts,
    "max_crashes": MaxAttempts,
    "updated_at_ms": Moment,
    "schema_digest": str | None,
    "at_most_once": str | None,
    "needs": str | None,
}
BREAKER: Mapping[str, Any] = {
    "kind": str,
    "state": Literal["closed", "slowed", "open"],
    "crashes": Annotated[int, Meta(ge=1)],
    "last_job": int,
    **dict.fromkeys(("next_at_ms", "changed_at_ms"), Moment),
}
PAUSE: Mapping[str, Any] = {
    "what": Literal["pool", "kind", "tenant", "quota", "store"],
    "name": str,
    **dict.fromkeys(("since_ms", "until_ms"), Moment | None),
    **dict.fromkeys(("who", "note"), str | None),
}
OUTPUT: Mapping[str, Any] = {
    "job_id": int,
    "attempt": Count,
    "at_ms": Moment,
    "output": str | None,
    "dropped_at_ms": Moment | None,
}
AUDIT: Mapping[str, Any] = {
    "at_ms": int,
    **dict.fromkeys(("who", "role", "origin", "action", "target"), str),
    "jobs": int,
    **dict.fromkeys(("changed", "note"), str | None),
}
SKETCH: Mapping[str, Any] = {
    "week": int,
    **dict.fromkeys(("kind", "pool"), str),
    "measure": Measure,
    **dict.fromkeys(("bucket", "attempts", "censored"), int),
}
SCHEDULE: Mapping[str, Any] = {
    "id": int,
    "name": str,
    **dict.fromkeys(("application", "app_version"), str | None),
    **dict.fromkeys(("kind", "pool"), str),
    "payload": bytes,
    **dict.fromkeys(("codec", "tenant"), str | None),
    "priority": int,
    **dict.fromkeys(("rule", "options"), str),
    **dict.fromkeys(("updated_at_ms", "since_ms"), int),
    **dict.fromkeys(("last_at_ms", "last_end_ms", "next_at_ms"), int | None),
    "planned_at_ms": int,
    "waits": Literal[0, 1, 2],
    "missed": int,
    "retired_at_ms": int | None,
    **dict.fromkeys(("paused_at_ms", "paused_until_ms"), int | None),
    **dict.fromkeys(("paused_by", "note"), str | None),
}
TICK: Mapping[str, Any] = {
    **dict.fromkeys(("id", "schedule", "nominal_at_ms", "stored_at_ms"), int),
    "state": TickState,
    "job_id": int | None,
    "job_state": Literal["succeeded", "dead", "quarantined", "canceled"] | None,
    "ended_at_ms": int | None,
    "backfilled": Flag,
}
QUOTA: Mapping[str, Any] = {
    "name": str,
    **dict.fromkeys(("rate_permits", "rate_per_s"), Seconds | None),
    **dict.fromkeys(("burst", "concurrency"), Count | None),
    "until_ms": Moment | None,
    **dict.fromkeys(("who", "note"), str | None),
    "updated_at_ms": Moment,
}
TENANT: Mapping[str, Any] = {
    "name": str,
    "concurrency": Count | None,
    **dict.fromkeys(("rate_permits", "rate_per_s"), Seconds | None),
    "burst": Count | None,
    "weight": Seconds | None,
    "who": str | None,
    "updated_at_ms": Moment,
}
SUSPECT: Mapping[str, Any] = {"job_id": int, "since_ms": Moment}
MISFIT: Mapping[str, Any] = {
    "job_id": int,
    "schema_digest": str,
    "since_ms": Moment,
    "until_ms": Moment,
}
DEBOUNCED: Mapping[str, Any] = {
    "job_id": int,
    **dict.fromkeys(("kind", "unique_text"), str),
    **dict.fromkeys(("waits", "until_start"), Flag),
    **dict.fromkeys(("replacements", "postponements"), Count),
}
_LEASE = ("token", "supervisor", "leased_at_ms")
_RAN = (JobState.LEASED, JobState.SUCCEEDED, JobState.QUARANTINED)


class RowRefused(StoreRefused):
    """A statement met a value that the database's rules forbid; nothing was changed.

    It may be a row that another program has written. A caller that knows which rows the
    statement was about checks them, and tries again.
    """


class Repaired(NamedTuple):
    """A row after its repair."""

    fields: dict[str, Any]
    wrong: list[str]
    """The columns that were invalid; none: it is unchanged."""
    is_set_aside: bool
    """The job is now dead."""

    @property
    def decides(self) -> bool:
        """Whether any invalid column decides what happens to the job."""
        return any(name not in _INFORMATIONAL for name in self.wrong)


def why(wrong: Sequence[str]) -> str:
    """Return the reason of a job that was set aside: columns, never their values."""
    return (
        f"its row in the database cannot be read ({', '.join(wrong)}: of the wrong "
        "type or out of range); another program has written it"
    )


def convert(values: Any, kind: Any) -> Any:
    """Convert values from a database to a record or records, strictly.

    Without ``builtin_types`` msgspec would read a text as base64 where bytes belong.

    Raises:
        msgspec.ValidationError: a value does not have the type of its field.
    """
    return msgspec.convert(values, kind, builtin_types=(bytes,))


class RowChecker:
    """Finds damaged rows, quickly.

    Args:
        columns: in the order of the rows.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        kinds = {**JOB, **BULK}
        self._record = msgspec.defstruct(
            "SoundRow", [(name, kinds[name]) for name in columns], array_like=True
        )

    def damaged(self, rows: Sequence[Sequence[Any]]) -> list[int]:
        """Return the places of the damaged rows."""
        try:
            records = convert(rows, list[self._record])  # type: ignore[name-defined]
        except msgspec.ValidationError:
            return [place for place, row in enumerate(rows) if not self._is_valid(row)]
        return [place for place, one in enumerate(records) if _contradicts(one)]

    def _is_valid(self, row: Sequence[Any]) -> bool:
        try:
            return not _contradicts(convert(row, self._record))
        except msgspec.ValidationError:
            return False


def _contradicts(row: Any) -> bool:
    """Say whether fields that are each valid contradict each other."""
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    return any(True for _ in _contradictions(fields, 0))


def repair_job(
    found: Mapping[str, Any],
    now_ms: int,
    *,
    also: Sequence[str] = (),
    held: bool = False,
) -> Repaired:
    """Return a job's row, repaired so that the database's rules allow it.

    Args:
        found: its columns, all or some of `JOB` and of `BULK`.
        now_ms: the store's clock.
        also: what else of the job cannot be read; the job is set aside for that.
        held: the job stays leased, since its supervisor settles it next.
    """
    fields, wrong = valid_fields(found, {**JOB, **BULK}, _REPLACEMENTS)
    _match_state(fields, wrong, now_ms)
    _release_keys(fields, wrong)
    wrong += also
    given = {name: fields.get(name) for name in found}
    repaired = Repaired(given, wrong, is_set_aside=False)
    if not repaired.decides or (fields["state"] in FINISHED and "state" not in wrong):
        return repaired
    given["reason"] = why(wrong)
    if held and fields["state"] is JobState.LEASED and not set(_LEASE) & set(wrong):
        return repaired
    given |= {"state": JobState.DEAD, "finished_at_ms": now_ms}
    given |= {name: None for name in _LEASE if name in given}
    if "cancel_requested" in given:
        given["cancel_requested"] = 0
    return repaired._replace(is_set_aside=True)


def repair_attempt(found: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return an attempt's row, repaired, and which columns were invalid."""
    return valid_fields(found, ATTEMPT, _ATTEMPT_REPLACEMENTS)


def valid_fields(
    found: Mapping[str, Any], kinds: Mapping[str, Any], replacements: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return fields, each valid by itself, and the names of those that were not."""
    fields: dict[str, Any] = {}
    wrong = []
    for name, value in found.items():
        try:
            fields[name] = convert(value, kinds[name])
        except msgspec.ValidationError:
            fields[name] = replacements.get(name)
            wrong.append(name)
    return fields, wrong


def repair_run(found: Mapping[str, Any], now_ms: int) -> tuple[dict[str, Any], bool]:
    """Return a run's row, repaired, and whether it was valid before.

    Its id must be readable: without one it is not a run.
    """
    replacements = {
        **_RUN_REPLACEMENTS,
        **dict.fromkeys(("started_at_ms", "heartbeat_at_ms"), now_ms),
        "lease_until_ms": now_ms + _LEASE_AGAIN_MS,
    }
    fields = dict(found)
    for name, value in found.items():
        if not is_valid({name: value}, RUN) or (
            name == "pools" and not _holds(value, dict[str, str])
        ):
            fields[name] = replacements.get(name)
    return fields, fields == found


def is_valid(found: Mapping[str, Any], columns: Mapping[str, Any]) -> bool:
    """Say whether a row of a small table, or some of its columns, can be read."""
    try:
        for name, value in found.items():
            convert(value, columns[name])
    except msgspec.ValidationError:
        return False
    names = found.get("at_most_once")
    return ("schema" not in found or _holds(found["schema"], dict[str, Any])) and (
        names is None or _holds(names, tuple[str, ...])
    )


def _holds(text: str, kind: Any) -> bool:
    """Say whether a text is JSON of a type."""
    try:
        msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def _release_keys(fields: dict[str, Any], wrong: Sequence[str]) -> None:
    """Keep a repaired row from colliding with another job's key or unique text."""
    if "kind" in wrong:
        fields["key"] = None
    if {"kind", "state", "finished_at_ms"}.intersection(wrong):
        fields["unique_text"] = None


def _match_state(fields: dict[str, Any], wrong: list[str], now_ms: int) -> None:
    """Repair the fields that contradict the state."""
    for name, value in list(_contradictions(fields, now_ms)):
        fields[name] = value
        if name not in wrong and "state" not in wrong:
            wrong.append(name)


def _contradictions(
    fields: Mapping[str, Any], now_ms: int
) -> Iterator[tuple[str, Any]]:
    """Yield the fields that contradict the state, each with a valid value."""
    state = fields["state"]
    is_over, is_leased = state in FINISHED, state is JobState.LEASED
    if is_over is (fields["finished_at_ms"] is None):
        yield "finished_at_ms", now_ms if is_over else None
    for name in _LEASE:
        if (fields.get(name) is not None) is not is_leased:
            yield name, None
    if fields.get("cancel_requested") and not is_leased:
        yield "cancel_requested", 0
    if state in _RAN and not fields["attempt"]:
        yield "attempt", 1
    if state is JobState.SUCCEEDED and fields["outcome"] is not Outcome.SUCCEEDED:
        yield "outcome", Outcome.SUCCEEDED
    if state is JobState.QUARANTINED and fields["outcome"] is None:
        yield "outcome", Outcome.LOST
