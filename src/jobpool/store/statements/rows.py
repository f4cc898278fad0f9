"""Converts rows to records, and separates the damaged ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from jobpool.core.jobs.job import (
    HISTORY_MAX,
    Attempt,
    Job,
    Lease,
    PastAttempt,
    Throttled,
)
from jobpool.core.jobs.ref import ref_of
from jobpool.core.rules.quotas.definition import Limits, Need
from jobpool.store.records.runs import KindRecord, Run
from jobpool.store.statements.integrity import (
    KIND,
    RUN,
    Count,
    MaxAttempts,
    Memory,
    Moment,
    Priority,
    Text,
    Timeout,
    Token,
    convert,
    is_valid,
    repair_run,
)
from jobpool.store.statements.limits import decoded
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Row, Session

T = TypeVar("T")
History = dict[int, tuple[PastAttempt, ...]]
"""Past attempts by job."""
_fields = cache(msgspec.structs.fields)
"""Evaluates all annotations only once for each record."""


class LeaseRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The columns of lease_candidates and leases_of, within a producer's bounds."""

    id: int
    kind: Text
    pool: Text
    attempt: Count
    payload: bytes
    checkpoint: bytes | None
    max_attempts: MaxAttempts | None
    timeout_s: Timeout | None
    memory_bytes: Memory | None
    failures: Count
    crashes: Count
    interruptions: Count
    recoveries: Count
    throttled: Any
    """Only informs: one that cannot be read is none."""
    reset_attempt: Count
    expires_at_ms: int | None
    token: Token | None
    leased_at_ms: Moment | None
    snoozes: Count
    snoozed_since_ms: Moment | None
    priority: Priority
    key: Text | None
    tenant: Text | None
    codec: Text | None
    tick: Any
    """Only informs: one that cannot be read is none."""
    run_at_ms: Any
    """Only orders jobs of the same priority."""
    step: Any
    """Of a member of a flow; one that cannot be read is none."""
    trace: Any
    """Only informs: one that cannot be read is none."""


def read_leases(rows: Sequence[Row]) -> tuple[list[LeaseRow], list[Row]]:
    """Return the rows that can be read, and those that cannot."""
    try:
        return convert(rows, list[LeaseRow]), []
    except msgspec.ValidationError:
        pass  # At least one is damaged: find it.
    good: list[LeaseRow] = []
    bad: list[Row] = []
    for row in rows:
        try:
            good.append(convert(row, LeaseRow))
        except msgspec.ValidationError:
            bad.append(row)
    return good, bad


def has_payload(row: Row) -> bool:
    """Say whether a row that cannot be read as a lease has a readable payload."""
    return isinstance(row[LeaseRow.__struct_fields__.index("payload")], bytes)


def read_history(
    session: Session, rows: Sequence[LeaseRow]
) -> tuple[History, frozenset[int]]:
    """Return the past attempts by job, and the jobs whose past cannot be read."""
    # Only these can have stored attempts since the last reset.
    resets = [
        (row.id, row.reset_attempt, tried > HISTORY_MAX)
        for row in rows
        if (tried := row.attempt - row.reset_attempt) > 0
    ]
    if not resets:
        return {}, frozenset()
    found = session.rows("history_of", rows=as_json(resets))
    history: History = {}
    damaged: set[int] = set()
    for job_id, past in groupby(found, key=itemgetter(0)):
        try:
            history[job_id] = convert(
                [row[1:] for row in past], tuple[PastAttempt, ...]
            )
        except msgspec.ValidationError:
            damaged.add(job_id)
    return history, frozenset(damaged)


def make_lease(
    row: LeaseRow,
    *,
    token: int,
    attempt: int,
    leased_at_ms: int,
    history: tuple[PastAttempt, ...],
    suspect: bool = False,
    unfit: bool = False,
) -> Lease:
    """Return the lease of a job; fields are passed by position, which is faster."""
    lease = Lease(
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
        row.snoozes,
        row.snoozed_since_ms,
        row.priority,
        row.key,
        row.tenant,
        unfit,
        row.codec,
        row.run_at_ms if type(row.run_at_ms) is int else 0,
    )
    if type(row.step) is int:  # a damaged one costs no more than a look sooner
        lease = msgspec.structs.replace(lease, step=row.step)
    if type(row.trace) is str:
        lease = msgspec.structs.replace(lease, trace=row.trace)
    return lease if row.throttled is None else _with_throttled(lease, row.throttled)


def _with_throttled(lease: Lease, text: Any) -> Lease:
    """Return a lease that knows how often in a row its job was throttled."""
    if (throttled := _throttled(text)) is None:
        return lease
    known: Lease = msgspec.structs.replace(
        lease, throttles=throttled.times, throttled_since_ms=throttled.since_ms
    )
    return known


def _throttled(text: Any) -> Throttled | None:
    """Return how often a job was throttled, as stored; None: it cannot be read."""
    try:
        times, since_ms = msgspec.json.decode(text, type=tuple[Count, Moment])
    except (TypeError, msgspec.MsgspecError, UnicodeError):
        return None
    return Throttled(times, since_ms)


_JOB_FIELDS = tuple(name for name in Job.__struct_fields__ if name != "ref")
_CANCEL = _JOB_FIELDS.index("cancel_requested")
_BLANK: dict[type, Any] = {int: 0, str: "", bytes: b""}


def job_from(row: Row, ref_key: bytes | None) -> Job:
    """Return a row of the view jobpool_job_records as a record.

    Args:
        row: its columns are the record's fields, but for `ref`; and the unique text
            that it waits for, or has given up.
        ref_key: the store's key for refs; None: it is damaged, and there are none.

    Unreadable values, which only another program can have written, are left blank: a
    listing must show the other jobs, and this one as well as possible.
    """
    *fields, shared_text = row
    values = dict(zip(_JOB_FIELDS, fields, strict=True))
    values["cancel_requested"] = row[_CANCEL] == 1
    values["until_start"] = values["until_start"] == 1
    # None, most often: a listing has many.
    throttled = values["throttles"] and _throttled(values["throttles"])
    values["throttles"] = throttled.times if throttled else 0
    if values["unique"] is None:
        values["unique"] = shared_text
    for count in ("replacements", "postponements"):
        values[count] = values[count] or 0
    values["ref"] = "" if ref_key is None else ref_of(row[0], ref_key)
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
                for field in _fields(record)  # type: ignore[arg-type]
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


def run_from(row: Row, now_ms: int) -> Run | None:
    """Return a row of open_runs as a record, repaired; None: it has no readable id."""
    found = dict(zip(Run.__struct_fields__, row, strict=True))
    is_leaving = bool(found.pop("is_leaving"))
    if not is_valid({"id": found["id"]}, RUN):
        return None
    fields, _ = repair_run(found, now_ms)
    limits = decoded(fields.pop("limits"), Limits) or Limits()
    run: Run = convert({**fields, "pools": json.loads(fields["pools"])}, Run)
    return msgspec.structs.replace(run, limits=limits, is_leaving=is_leaving)


def kind_from(row: Row) -> KindRecord | None:
    """Return a row of get_kinds as a record; None: it cannot be read."""
    values = dict(zip(KindRecord.__struct_fields__, row, strict=True))
    if not is_valid(values, KIND):
        return None
    names = values["at_most_once"]
    needs = decoded(values.pop("needs"), tuple[Need, ...]) or ()
    kind: KindRecord = convert(
        {
            **values,
            "schema": values["schema"].encode(),
            "at_most_once": json.loads(names) if names else (),
        },
        KindRecord,
    )
    return msgspec.structs.replace(kind, needs=needs)


def records(record: type[T], rows: Iterable[Row]) -> list[T]:
    """Return rows whose columns are a record's fields, in order.

    Values that cannot be read are left blank.
    """
    fields = record.__struct_fields__  # type: ignore[attr-defined]
    return [_convert(dict(zip(fields, row, strict=True)), record) for row in rows]
