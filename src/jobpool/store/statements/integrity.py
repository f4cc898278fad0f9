"""What a row may hold, and how one is put right that holds something else. Pure.

Theory of operation. A database keeps rows to its rules until somebody writes there with
another tool, restores half of a backup, or a disk lies. Such a row must cost itself and
no other. So one table says for every column of a job what it may hold, and a row that
holds something else is *put right*: each field that cannot stand gets a value that can.
A job that has not ended is set aside then, as dead with that reason: nobody can say
what was asked for. Unless the field only tells of the past and decides nothing: then it
goes on, and a job that has ended stays as it ended.

Nobody looks at whole rows in the usual way. They are looked at when a statement fails
because of one (`methods.mending`), when a value that is needed cannot be read, when a
queue moves house, and by a slow walk over the table (`Store.scrub`).
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
"""It names a directory: nothing else may come of it."""
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
}
"""What each column of a job may hold, in the order in which `raw_jobs` returns them."""
BULK: Mapping[str, Any] = {"payload": bytes, "result": bytes | None}
"""What else belongs to a job."""
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
        "peak_rss_bytes",
        "progress",
        "result",
    }
)
"""Columns that decide nothing of what becomes of a job."""
_REPLACEMENTS: Mapping[str, Any] = {
    "kind": "",
    "pool": "",
    "state": JobState.DEAD,
    **dict.fromkeys(("priority", "created_at_ms", "run_at_ms", "cancel_requested"), 0),
    **dict.fromkeys(("attempt", "reset_attempt", "snoozes"), 0),
    **dict.fromkeys(("failures", "crashes", "interruptions", "recoveries"), 0),
    **dict.fromkeys(("payload", "result"), b""),  # no JSON, and so nobody's
}
"""What stands for a value that cannot, where that is not NULL."""
RUN: Mapping[str, Any] = {
    "id": RunId,
    **dict.fromkeys(("host", "boot_id"), str),
    **dict.fromkeys(("pid", "pid_namespace"), Token),
    **dict.fromkeys(("version", "pools"), str),
    **dict.fromkeys(("started_at_ms", "heartbeat_at_ms", "lease_until_ms"), Moment),
    **dict.fromkeys(("ended_at_ms", "leaving_at_ms", "died_at_ms"), Moment | None),
    "died_with_jobs": Count | None,
}
"""What each column of a run may hold, in the order of `raw_runs`."""
_RUN_REPLACEMENTS: Mapping[str, Any] = {
    **dict.fromkeys(("host", "boot_id", "version"), ""),
    **dict.fromkeys(("pid", "pid_namespace"), 0),
    "pools": "{}",
}
_LEASE_AGAIN_MS = 60_000
"""A lease whose end cannot be read ends so much later: its holder renews it before."""
KIND: Mapping[str, Any] = {
    **dict.fromkeys(("kind", "run_id", "pool", "schema"), str),
    "timeout_s": Timeout,
    "memory_bytes": Memory,
    "max_attempts": MaxAttempts,
    "max_crashes": MaxAttempts,
    "updated_at_ms": Moment,
    "schema_digest": str | None,
}
BREAKER: Mapping[str, Any] = {
    "kind": str,
    "state": Literal["closed", "slowed", "open"],
    "crashes": Annotated[int, Meta(ge=1)],
    "last_job": int,
    **dict.fromkeys(("next_at_ms", "changed_at_ms"), Moment),
}
PAUSE: Mapping[str, Any] = {"what": Literal["pool", "kind"], "name": str}
SUSPECT: Mapping[str, Any] = {"job_id": int, "since_ms": Moment}
MISFIT: Mapping[str, Any] = {
    "job_id": int,
    "schema_digest": str,
    "since_ms": Moment,
    "until_ms": Moment,
}
_LEASE = ("token", "supervisor", "leased_at_ms")
_RAN = (JobState.LEASED, JobState.SUCCEEDED, JobState.QUARANTINED)


class RowRefused(StoreRefused):
    """A statement met a value that the database's own rules forbid: nothing is changed.

    It may be a row that somebody else has written. Who knows which rows it was about
    looks at them, and tries again.
    """


class Repaired(NamedTuple):
    """A row that was put right."""

    fields: dict[str, Any]
    wrong: list[str]
    """Its columns that could not stand; none: it is as it was."""
    is_set_aside: bool
    """It is dead by that."""

    @property
    def decides(self) -> bool:
        """Whether any of them decides what becomes of the job."""
        return any(name not in _INFORMATIONAL for name in self.wrong)


def why(wrong: Sequence[str]) -> str:
    """Return the reason of a job that was set aside: columns, never their values."""
    return (
        f"its row in the database cannot be read ({', '.join(wrong)}: of the wrong "
        "type or out of range); somebody else has written it"
    )


def convert(values: Any, kind: Any) -> Any:
    """Return values of a database as a record or records.

    Strictly: without ``builtin_types`` msgspec would take a text for base64 where
    bytes belong.

    Raises:
        msgspec.ValidationError: a value has not the type of its field.
    """
    return msgspec.convert(values, kind, builtin_types=(bytes,))


class RowChecker:
    """Tells rows that can stand from others, quickly.

    Args:
        columns: in the order of the rows.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        kinds = {**JOB, **BULK}
        self._record = msgspec.defstruct(
            "SoundRow", [(name, kinds[name]) for name in columns], array_like=True
        )

    def damaged(self, rows: Sequence[Sequence[Any]]) -> list[int]:
        """Return the places of the rows that cannot stand."""
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
    """Say whether fields that can stand each by itself cannot beside each other."""
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    return any(True for _ in _contradictions(fields, 0))


def repair_job(
    found: Mapping[str, Any],
    now_ms: int,
    *,
    also: Sequence[str] = (),
    held: bool = False,
) -> Repaired:
    """Return a job's row such that the database's rules allow it, whatever it held.

    Args:
        found: its columns, all of `JOB` or some, and of `BULK`.
        now_ms: the store's clock.
        also: what else of the job cannot be read; it is set aside for that.
        held: a supervisor holds its lease and settles it next: it stays leased.
    """
    fields, wrong = _valid_fields(found, {**JOB, **BULK}, _REPLACEMENTS)
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
    """Return an attempt's row such that it can be read, and what could not."""
    return _valid_fields(found, ATTEMPT, _ATTEMPT_REPLACEMENTS)


def _valid_fields(
    found: Mapping[str, Any], kinds: Mapping[str, Any], replacements: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return fields, each such that it can stand by itself, and which could not."""
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
    """Return a run's row such that it can be read, and whether it could before.

    Its id has to be readable: who has none is nobody.
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
    """Say whether a row of a small table, or some columns of it, can be read."""
    try:
        for name, value in found.items():
            convert(value, columns[name])
    except msgspec.ValidationError:
        return False
    return "schema" not in found or _holds(found["schema"], dict[str, Any])


def _holds(text: str, kind: Any) -> bool:
    """Say whether a text is JSON of a type."""
    try:
        msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def _release_keys(fields: dict[str, Any], wrong: Sequence[str]) -> None:
    """Let no value that was put right meet another job's key or unique text."""
    if "kind" in wrong:
        fields["key"] = None
    if {"kind", "state", "finished_at_ms"}.intersection(wrong):
        fields["unique_text"] = None


def _match_state(fields: dict[str, Any], wrong: list[str], now_ms: int) -> None:
    """Put right what cannot stand beside the state."""
    for name, value in list(_contradictions(fields, now_ms)):
        fields[name] = value
        if name not in wrong and "state" not in wrong:
            wrong.append(name)


def _contradictions(
    fields: Mapping[str, Any], now_ms: int
) -> Iterator[tuple[str, Any]]:
    """Yield what cannot stand beside the state, with what can."""
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
