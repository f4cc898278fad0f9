"""Schedules and their ticks as rows, and the records that are made of these. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from jobpool.core.jobs.job import JobState, NewJob, Scheduled
from jobpool.core.rules.schedules.policy import Policy
from jobpool.core.rules.schedules.rule import Rule, jitter_of
from jobpool.core.rules.schedules.schedule import (
    FOREVER_MS,
    Declared,
    Progress,
    TickState,
    check_declared,
    progress_of,
)
from jobpool.errors import ConfigError, UsageError
from jobpool.store.records.schedules import JobTick, ScheduleRow, TickRow
from jobpool.store.statements.integrity import convert
from jobpool.store.statements.parameters import Blobs
from jobpool.store.statements.session import Row
from jobpool.store.statements.validation import check_new_jobs


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of a schedule besides its columns."""

    policy: Policy = Policy()
    max_attempts: int | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    expires_in_ms: int | None = None
    quota_values: dict[str, str] | None = None


_OPTIONS = [name for name in Options.__struct_fields__ if name != "policy"]
_JOB_STATES = frozenset(JobState)
_encode = msgspec.json.encode
_read_rule = msgspec.json.Decoder(Rule).decode
_read_options = msgspec.json.Decoder(Options).decode


class StoredSchedule(msgspec.Struct, frozen=True, array_like=True):
    """A row of `lock_due_schedules` and others."""

    id: int
    name: str
    application: str | None
    app_version: str | None
    kind: str
    pool: str
    payload: bytes
    codec: str | None
    tenant: str | None
    priority: int
    rule: str
    options: str
    updated_at_ms: int
    since_ms: int
    last_at_ms: int | None = None
    last_end_ms: int | None = None
    next_at_ms: int | None = None
    planned_at_ms: int = 0
    waits: int = 0
    missed: int = 0
    retired_at_ms: int | None = None
    paused_at_ms: int | None = None
    paused_until_ms: int | None = None
    paused_by: str | None = None
    note: str | None = None

    def declared(self) -> Declared:
        """Return what was declared or put.

        Raises:
            msgspec.MsgspecError: it cannot be read: another program has written it.
        """
        options = _read_options(self.options)
        return Declared(
            name=self.name,
            kind=self.kind,
            pool=self.pool,
            payload=self.payload,
            rule=_read_rule(self.rule),
            policy=options.policy,
            priority=self.priority,
            tenant=self.tenant,
            codec=self.codec,
            **{name: getattr(options, name) for name in _OPTIONS},
        )

    def is_like(self, declared: Declared, *, encoded_anew: bool = False) -> bool:
        """Say whether this is what is declared now.

        Args:
            declared: as it is declared now.
            encoded_anew: encoded arguments may be others: a codec like Fernet makes
                another text of the same ones each time.
        """
        try:
            own = self.declared()
        except msgspec.MsgspecError:
            return False
        if encoded_anew and declared.codec is not None and own.codec == declared.codec:
            own = msgspec.structs.replace(own, payload=declared.payload)
        return own == declared

    def has_rule(self, rule: Rule) -> bool:
        """Say whether it has this rule."""
        try:
            return _read_rule(self.rule) == rule
        except msgspec.MsgspecError:
            return False

    def progress(self) -> Row:
        """Return the row for `plan_schedules`."""
        return (
            self.id,
            self.since_ms,
            self.last_at_ms,
            self.last_end_ms,
            self.next_at_ms,
            self.waits,
            self.missed,
            self.retired_at_ms,
            self.paused_at_ms,
            self.paused_until_ms,
            self.paused_by,
            self.note,
        )


_COLUMNS = len(StoredSchedule.__struct_fields__)


def read_schedules(rows: Iterable[Row]) -> tuple[list[StoredSchedule], list[Row]]:
    """Return the rows that can be read, and those that cannot."""
    good: list[StoredSchedule] = []
    bad: list[Row] = []
    for row in rows:
        try:
            good.append(convert(row, StoredSchedule))
        except msgspec.ValidationError:
            bad.append(row)
    return good, bad


class Definition(NamedTuple):
    """The columns that say what a schedule is: of `insert_schedules`."""

    name: str
    application: str | None
    app_version: str | None
    kind: str
    pool: str
    codec: str | None
    tenant: str | None
    priority: int
    rule: str
    options: str
    payload: bytes

    def row(self, blobs: Blobs) -> Row:
        """Return the row, with the payload's place among bytes."""
        return (*self[:-1], *blobs.add(self.payload))


def definition_of(
    declared: Declared, application: str | None = None, app_version: str | None = None
) -> Definition:
    """Return what is stored of a checked schedule."""
    options = Options(
        policy=declared.policy,
        **{name: getattr(declared, name) for name in _OPTIONS},
    )
    return Definition(
        declared.name,
        application,
        app_version,
        declared.kind,
        declared.pool,
        declared.codec,
        declared.tenant,
        declared.priority,
        _encode(declared.rule).decode(),
        _encode(options).decode(),
        declared.payload,
    )


def check_schedules(declared: Sequence[Declared], now_ms: int) -> None:
    """Refuse schedules that cannot be kept, or whose jobs could not be stored.

    Raises:
        UsageError: names the schedule, the field, and what was expected.
    """
    for one in declared:
        try:
            check_declared(one)
            check_new_jobs([job_of(one)], now_ms)
        except ConfigError as exc:
            raise UsageError(f"{exc}; nothing was stored") from exc
        except UsageError as exc:
            what = str(exc).replace("nothing was enqueued", "nothing was stored")
            raise UsageError(f"schedule {one.name!r}: {what}") from exc


def no_schedule(name: str) -> UsageError:
    """Return the error for the name of a schedule that there is not."""
    return UsageError(
        f"there is no schedule {name[:200]!r}; `jobpool schedules` lists them. Nothing "
        "was changed"
    )


def job_of(declared: Declared) -> NewJob:
    """Return what each tick of a schedule enqueues."""
    return NewJob(
        kind=declared.kind,
        pool=declared.pool,
        payload=declared.payload,
        priority=declared.priority,
        tenant=declared.tenant,
        max_attempts=declared.max_attempts,
        timeout_s=declared.timeout_s,
        memory_bytes=declared.memory_bytes,
        expires_in_ms=declared.expires_in_ms,
        codec=declared.codec,
        quota_values=declared.quota_values,
    )


class StoredTick(NamedTuple):
    """A tick that has not ended, and how far its job is."""

    id: int
    schedule: int
    nominal_ms: int
    job_id: int | None
    is_backfilled: bool
    progress: Progress
    job_state: JobState | None = None
    finished_ms: int | None = None
    is_retrying: bool = False
    """Its job waits for a retry, whatever `progress` takes it for."""


class NewTick(NamedTuple):
    """A tick to be stored."""

    schedule: int
    nominal_ms: int
    state: TickState
    is_backfilled: bool = False

    def row(self, now_ms: int) -> Row:
        """Return the row for `insert_ticks`."""
        ended_ms = now_ms if self.state is TickState.SKIPPED else None
        return (*self[:3], int(self.is_backfilled), ended_ms)


class EndedTick(NamedTuple):
    """How a tick ended: a row for `end_ticks`."""

    id: int
    state: TickState
    job_state: JobState | None
    """None: it had none, or that was gone already."""
    ended_ms: int


def is_tick(row: Row) -> bool:
    """Say whether a row of `open_ticks` can be read; another program may have it."""
    _, schedule, nominal_ms, state, job_id, *_ = row
    return (
        isinstance(schedule, int)
        and isinstance(nominal_ms, int)
        and (state == TickState.BUFFERED or isinstance(job_id, int))
    )


def stored_tick(row: Row) -> StoredTick:
    """Return a row of `open_ticks`."""
    tick_id, schedule, nominal_ms, state, job_id, is_backfilled, *job = row
    job_state, finished_ms, attempt = job
    known = JobState(job_state) if job_state in _JOB_STATES else None
    progress = Progress.BUFFERED
    if state != TickState.BUFFERED:
        progress = progress_of(known, attempt or 0)
    return StoredTick(
        tick_id,
        schedule,
        nominal_ms,
        job_id,
        bool(is_backfilled),
        progress,
        known,
        finished_ms,
        progress is Progress.RETRYING,
    )


def tick_from(row: Row) -> TickRow | None:
    """Return a row of `find_ticks` as a record; None: there is no tick."""
    nominal_ms, stored_ms, state, job_id, job_state, is_backfilled, ended_ms = row
    if nominal_ms is None:
        return None
    return TickRow(
        nominal_ms=nominal_ms,
        stored_ms=stored_ms,
        state=TickState(state),
        job_id=job_id,
        job_state=JobState(job_state) if job_state in _JOB_STATES else None,
        backfilled=bool(is_backfilled),
        ended_ms=ended_ms,
    )


def schedule_from(row: Row) -> ScheduleRow | None:
    """Return a row of `find_schedules` as a record; None: it cannot be read."""
    try:
        stored = convert(row[:_COLUMNS], StoredSchedule)
        return record_of(stored, tick_from(row[_COLUMNS:]))
    except msgspec.MsgspecError:
        return None


def record_of(stored: StoredSchedule, last_tick: TickRow | None) -> ScheduleRow:
    """Return a schedule as callers see it.

    Raises:
        msgspec.MsgspecError: it cannot be read.
    """
    until_ms = stored.paused_until_ms
    has_end = stored.paused_at_ms is not None and until_ms != FOREVER_MS
    return ScheduleRow(
        declared=stored.declared(),
        application=stored.application,
        app_version=stored.app_version,
        since_ms=stored.since_ms,
        updated_ms=stored.updated_at_ms,
        last_ms=stored.last_at_ms,
        next_ms=stored.next_at_ms,
        missed=stored.missed,
        retired_ms=stored.retired_at_ms,
        paused_ms=stored.paused_at_ms,
        paused_until_ms=until_ms if has_end else None,
        paused_by=stored.paused_by,
        note=stored.note,
        last_tick=last_tick,
    )


def job_tick(
    name: str, nominal_ms: object, rule: str, is_backfilled: object
) -> JobTick | None:
    """Return a row of `tick_of_job` as a record; None: it cannot be read."""
    try:
        tz = _read_rule(rule).tz
        told: JobTick = convert((name, nominal_ms, tz, bool(is_backfilled)), JobTick)
    except msgspec.MsgspecError:
        return None
    return told


def scheduled_from(
    name: str, nominal_ms: int, rule: str, is_backfilled: object, *, now_ms: int
) -> Scheduled:
    """Return what a leased job is told of its tick: a row of `scheduled`."""
    try:
        known = _read_rule(rule)
    except msgspec.MsgspecError:
        known = Rule()
    due_ms = nominal_ms + jitter_of(known, name)
    return Scheduled(
        name, nominal_ms, known.tz, max(0, now_ms - due_ms), bool(is_backfilled)
    )
