"""Rows as records. A row that a hand has spoilt is told apart."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from jobpool.core.job import TIME_MAX_MS, Attempt, Job, Lease, PastAttempt
from jobpool.errors import StoreRefused
from jobpool.store.checking import COUNT_MAX, MAX_ATTEMPTS_MAX, MEMORY_MAX_BYTES
from jobpool.store.methods.session import Row
from jobpool.store.records import KindRecord, Run

T = TypeVar("T")
_Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]


def convert(values: Any, kind: type[T]) -> T:
    """Return values of a database as a record or records.

    Strictly: without ``builtin_types`` msgspec would take a text for base64 where
    bytes belong.

    Raises:
        msgspec.ValidationError: a value has not the type of its field.
    """
    return msgspec.convert(values, kind, builtin_types=(bytes,))


class LeaseRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The columns of lease_candidates and leases_of, within a producer's bounds."""

    id: int
    kind: str
    pool: str
    attempt: _Count
    payload: bytes
    checkpoint: bytes | None
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS_MAX)] | None
    timeout_s: Annotated[float, Meta(gt=0, le=sys.float_info.max)] | None
    memory_bytes: Annotated[int, Meta(ge=1, le=MEMORY_MAX_BYTES)] | None
    failures: _Count
    crashes: _Count
    interruptions: _Count
    recoveries: _Count
    reset_attempt: _Count
    expires_at_ms: int | None
    token: Annotated[int, Meta(ge=0)] | None
    leased_at_ms: Annotated[int, Meta(ge=0, le=TIME_MAX_MS)] | None


def read_leases(rows: Sequence[Row]) -> tuple[list[LeaseRow], list[int]]:
    """Return the rows that can be read, and the ids of those that cannot."""
    try:
        return convert(rows, list[LeaseRow]), []
    except msgspec.ValidationError:
        pass  # One of them: find it.
    good: list[LeaseRow] = []
    bad: list[int] = []
    for row in rows:
        try:
            good.append(convert(row, LeaseRow))
        except msgspec.ValidationError:
            bad.append(row[0])
    return good, bad


def make_lease(
    row: LeaseRow,
    *,
    token: int,
    attempt: int,
    leased_at_ms: int,
    history: tuple[PastAttempt, ...],
    suspect: bool = False,
) -> Lease:
    """Return the lease of a job; its fields go by their order."""
    return Lease(
        row.id,
        token,
        row.kind,
        row.pool,
        attempt,
        row.payload,
        row.checkpoint,
        row.max_attempts,
        row.timeout_s,
        row.memory_bytes,
        row.failures,
        row.crashes,
        row.interruptions,
        row.recoveries,
        history,
        leased_at_ms,
        row.expires_at_ms,
        suspect,
    )


_JOB_FIELDS = Job.__struct_fields__
_CANCEL = _JOB_FIELDS.index("cancel_requested")
_BLANK: dict[type, Any] = {int: 0, str: "", bytes: b""}


def job_from(row: Row) -> Job:
    """Return a row of the view jobpool_job_records as a record.

    Values that cannot be read, which only a hand can have written, are left blank:
    a listing must show the other jobs, and this one as well as it can.
    """
    values = dict(zip(_JOB_FIELDS, row, strict=True))
    values["cancel_requested"] = row[_CANCEL] == 1
    return _convert(values, Job)


def attempt_from(row: Row) -> Attempt:
    """Return a row of get_attempts as a record; unreadable values are blank."""
    return _convert(dict(zip(Attempt.__struct_fields__, row, strict=True)), Attempt)


def _convert(values: dict[str, Any], record: type[T]) -> T:
    try:
        found: T = convert(values, record)
    except msgspec.ValidationError:
        return record(
            **{
                field.name: _readable(values[field.encode_name], field.type)
                for field in msgspec.structs.fields(record)  # type: ignore[arg-type]
            }
        )
    return found


def _readable(value: Any, kind: Any) -> Any:
    for candidate in (value, None, *_BLANK.values()):
        try:
            return convert(candidate, kind)
        except msgspec.ValidationError:
            continue
    return next(iter(kind))


def run_from(row: Row, place: str) -> Run:
    """Return a row of open_runs as a record.

    Raises:
        StoreRefused: it cannot be read; *place* is named.
    """
    values = dict(zip(Run.__struct_fields__, row, strict=True))
    try:
        values["pools"] = json.loads(values["pools"])
        run: Run = convert(values, Run)
    except (TypeError, ValueError) as error:
        raise _unreadable(place, "runs") from error
    return run


def kind_from(row: Row, place: str) -> KindRecord:
    """Return a row of get_kinds as a record.

    Raises:
        StoreRefused: it cannot be read; *place* is named.
    """
    values = dict(zip(KindRecord.__struct_fields__, row, strict=True))
    try:
        schema = convert(values["schema"], str)
        kind: KindRecord = convert({**values, "schema": schema.encode()}, KindRecord)
    except ValueError as error:
        raise _unreadable(place, "kinds") from error
    return kind


def records(record: type[T], rows: Iterable[Row]) -> list[T]:
    """Return rows whose columns are a record's fields, in order."""
    fields = record.__struct_fields__  # type: ignore[attr-defined]
    return [convert(dict(zip(fields, row, strict=True)), record) for row in rows]


def _unreadable(place: str, table: str) -> StoreRefused:
    """Return the error for a row that is not as jobpool has written it."""
    return StoreRefused(
        f"the store {place}, table {table}, has a row that cannot be read; somebody "
        "else has written it. Put it right or delete it, or restore a backup"
    )
