"""Rows and tables: the jobs with their indexes, and tables of small records.

A table derives its indexes from the rows, so that a caller that puts a row, whether
new, changed or restored, need not update them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from jobpool.core.jobs.job import (
    FINISHED,
    HISTORY_MAX,
    Attempt,
    Job,
    JobState,
    Lease,
    NewJob,
    PastAttempt,
)
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.store.memory.ordered_set import RankSet, rank_by_priority, rank_by_time

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
# Accessing an enum's member costs a lookup in its class each time.
_PENDING, _RUNNABLE = JobState.PENDING, JobState.RUNNABLE
_WAITING = JobState.WAITING


class Tried(NamedTuple):
    """An attempt that did not succeed, for people and for the retry policy."""

    shown: Attempt
    past: PastAttempt


# Rows and their parts are never changed, only replaced: a row is a snapshot of the job,
# and a change is undone by putting the former row back. They contain no cycles, so the
# garbage collector need not walk over 100,000 of them again and again.
class Spent(msgspec.Struct, frozen=True, gc=False):
    """What was charged since the last reset."""

    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    recoveries: int = 0


class Held(msgspec.Struct, frozen=True, gc=False):
    """The lease of a leased job."""

    token: int
    run_id: str
    since_ms: int
    cancel_requested: bool = False
    rss_bytes: int | None = None
    output: str | None = None
    """What the attempt has written so far."""


class Begun(msgspec.Struct, frozen=True, gc=False):
    """The attempt that runs or, once it is over, ran last."""

    slot: str | None = None
    started_at_ms: int | None = None
    last_heartbeat_at_ms: int | None = None
    progress: bytes | None = None


class Ended(msgspec.Struct, frozen=True, gc=False):
    """How the last attempt ended, and the reason for the job's state."""

    outcome: Outcome | None = None
    reason: str | None = None
    error_class: str | None = None
    error: str | None = None
    duration_s: float | None = None
    cpu_s: float | None = None
    peak_rss_bytes: int | None = None


NOTHING_SPENT = Spent()
NOT_BEGUN = Begun()
NOT_ENDED = Ended()


class Row(msgspec.Struct, frozen=True, gc=False):
    """A job. Fields that `core.jobs.job.Job` also has mean the same."""

    id: int
    new: NewJob
    """The job as enqueued: kind, pool, payload, options."""
    state: JobState
    created_at_ms: int
    run_at_ms: int
    expires_at_ms: int | None
    finished_at_ms: int | None = None
    attempt: int = 0
    reset_attempt: int = 0
    """Attempts before an operator's last reset."""
    spent: Spent = NOTHING_SPENT
    held: Held | None = None
    begun: Begun = NOT_BEGUN
    ended: Ended = NOT_ENDED
    checkpoint: bytes | None = None
    result: bytes | None = None
    """None: null, if the job has succeeded."""
    tried: tuple[Tried, ...] = ()
    """Oldest first."""
    snoozes: int = 0
    snoozed_since_ms: int | None = None
    replays: int | None = None
    replaced_by: int | None = None
    tick: int | None = None

    def is_late(self, now_ms: int) -> bool:
        """Say whether it has expired before its first attempt."""
        expires_at_ms = self.expires_at_ms
        return (
            expires_at_ms is not None and expires_at_ms <= now_ms and not self.attempt
        )


def lease_from(row: Row, held: Held) -> Lease:
    """Return the lease of a leased job."""
    new = row.new
    # In two steps: Python builds a dict before a call with more than 15 keywords.
    lease = Lease(
        id=row.id,
        token=held.token,
        kind=new.kind,
        pool=new.pool,
        attempt=row.attempt,
        payload=new.payload,
        checkpoint=row.checkpoint,
        max_attempts=new.max_attempts,
        timeout_s=new.timeout_s,
        memory_bytes=new.memory_bytes,
        leased_at_ms=held.since_ms,
        expires_at_ms=row.expires_at_ms,
        priority=new.priority,
        key=new.key,
        tenant=new.tenant,
        codec=new.codec,
    )
    if row.snoozes:
        lease = msgspec.structs.replace(
            lease, snoozes=row.snoozes, snoozed_since_ms=row.snoozed_since_ms
        )
    if row.attempt == 1:
        return lease
    spent = row.spent
    return msgspec.structs.replace(
        lease,
        failures=spent.failures,
        crashes=spent.crashes,
        interruptions=spent.interruptions,
        recoveries=spent.recoveries,
        history=_history(row),
    )


def _history(row: Row) -> tuple[PastAttempt, ...]:
    return tuple(
        tried.past
        for tried in row.tried[-HISTORY_MAX:]
        if tried.shown.attempt > row.reset_attempt
    )


def job_from(row: Row, lease_until_ms: int | None) -> Job:
    """Return the record of a job.

    Args:
        row: the job.
        lease_until_ms: the end of its supervisor's leases, if it has one.
    """
    new, spent, held = row.new, row.spent, row.held
    begun, ended = row.begun, row.ended
    result = None
    if row.state is JobState.SUCCEEDED:
        result = b"null" if row.result is None else row.result
    return Job(
        id=row.id,
        kind=new.kind,
        pool=new.pool,
        state=row.state,
        priority=new.priority,
        key=new.key,
        unique=new.unique,
        tenant=new.tenant,
        attempt=row.attempt,
        max_attempts=new.max_attempts,
        failures=spent.failures,
        crashes=spent.crashes,
        interruptions=spent.interruptions,
        recoveries=spent.recoveries,
        timeout_s=new.timeout_s,
        memory_bytes=new.memory_bytes,
        outcome=ended.outcome,
        reason=ended.reason,
        error_class=ended.error_class,
        error=ended.error,
        result=result,
        progress=begun.progress,
        checkpoint=row.checkpoint,
        created_at_ms=row.created_at_ms,
        run_at_ms=row.run_at_ms,
        expires_at_ms=row.expires_at_ms,
        started_at_ms=begun.started_at_ms,
        finished_at_ms=row.finished_at_ms,
        last_heartbeat_at_ms=begun.last_heartbeat_at_ms,
        lease_until_ms=lease_until_ms,
        cancel_requested=held is not None and held.cancel_requested,
        supervisor=None if held is None else held.run_id,
        slot=begun.slot,
        duration_s=ended.duration_s,
        cpu_s=ended.cpu_s,
        peak_rss_bytes=ended.peak_rss_bytes,
        snoozes=row.snoozes,
        snoozed_since_ms=row.snoozed_since_ms,
        rss_bytes=None if held is None else held.rss_bytes,
        replays=row.replays,
        replaced_by=row.replaced_by,
        codec=new.codec,
    )


class Table(Protocol[K_contra, V]):
    """A table that the journal can change and restore."""

    def get(self, key: K_contra, /) -> V | None:
        """Return the record of a key, or None."""
        ...

    def put(self, key: K_contra, record: V | None) -> None:
        """Store the record of a key; None: delete it."""
        ...


class Records(dict[K, V], Generic[K, V]):
    """A table without indexes."""

    def put(self, key: K, record: V | None) -> None:
        """See `Table.put`."""
        if record is None:
            self.pop(key, None)
        else:
            self[key] = record


class JobTable:
    """All jobs.

    Attributes:
        unfinished: how many there are.
        by_key: ids by kind and idempotency key.
        by_unique: ids of unfinished jobs by kind and unique text.
        runnable: by pool and kind, in the order in which they are leased.
        pending: by the moment at which they fall due.
        expiring: jobs without an attempt that do not wait for others, by the moment at
            which they expire.
        held: ids of leased jobs by run.
        stopping: those of them whose cancellation was requested.
        finished: by state, by the moment of their end.
    """

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._last_id = 0
        self._newest_id = 0
        self._is_in_order = True
        self._is_torn = False
        self.unfinished = 0
        self.by_key: dict[tuple[str, str], int] = {}
        self.by_unique: dict[tuple[str, str], int] = {}
        self.runnable: defaultdict[tuple[str, str], RankSet] = defaultdict(RankSet)
        self.pending = RankSet()
        self.expiring = RankSet()
        self.held: defaultdict[str, set[int]] = defaultdict(set)
        self.stopping: defaultdict[str, set[int]] = defaultdict(set)
        self.finished = {state: RankSet() for state in FINISHED}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, job_id: int) -> Row:
        return self._rows[job_id]

    def get(self, job_id: int, /) -> Row | None:
        """See `Table.get`."""
        return self._rows.get(job_id)

    def take_id(self) -> int:
        """Return a fresh id; ids increase and are never given out twice."""
        self._last_id += 1
        return self._last_id

    def take_ids(self, last_id: int) -> None:
        """Give out no id up to this one any more."""
        self._last_id = max(self._last_id, last_id)

    @property
    def last_id(self) -> int:
        """The last id that was given out."""
        return self._last_id

    def put(self, job_id: int, row: Row | None) -> None:
        """See `Table.put`."""
        former = self._rows.get(job_id)
        if row is not None:
            self.swap(former, row)
        elif former is not None:
            self._is_torn = True
            self._leave(former)
            del self._rows[job_id]
            self._is_torn = False

    def swap(self, former: Row | None, row: Row) -> None:
        """Replace a job's row; *former* None: the job is new."""
        self._is_torn = True
        if former is not None:
            self._leave(former)
        elif row.id > self._newest_id:
            self._newest_id = row.id
        else:
            self._is_in_order = False  # Its deletion is being undone.
        self._rows[row.id] = row
        self._enter(row)
        self._is_torn = False

    def repair_indexes(self) -> None:
        """Rebuild the indexes, if a Ctrl-C has interrupted a change to one."""
        if not self._is_torn:
            return
        self.unfinished = 0
        for index in (self.by_key, self.by_unique):
            index.clear()
        for members in (self.runnable, self.held, self.stopping):
            members.clear()
        self.pending, self.expiring = RankSet(), RankSet()
        self.finished = {state: RankSet() for state in FINISHED}
        for row in self._rows.values():
            self._enter(row)
        self._is_torn = False

    def newest_first(self) -> Iterator[Row]:
        """Return all jobs, the highest id first."""
        if not self._is_in_order:
            self._rows = dict(sorted(self._rows.items()))
            self._is_in_order = True
        return reversed(self._rows.values())

    def tidy(self) -> None:
        """Drop index entries of kinds and runs that no longer have jobs."""
        for index in (self.runnable, self.held, self.stopping):
            for key in [key for key, members in index.items() if not members]:
                del index[key]  # type: ignore[arg-type]

    def _enter(self, row: Row) -> None:
        new, job_id, state = row.new, row.id, row.state
        if new.key is not None:
            self.by_key[new.kind, new.key] = job_id
        if row.finished_at_ms is not None:
            rank = rank_by_time(row.finished_at_ms, job_id)
            self.finished[state].add(rank)
            return
        if state is _RUNNABLE:
            rank = rank_by_priority(new.priority, row.run_at_ms, job_id)
            self.runnable[new.pool, new.kind].add(rank)
        elif state is _PENDING:
            self.pending.add(rank_by_time(row.run_at_ms, job_id))
        elif row.held is not None:
            self.held[row.held.run_id].add(job_id)
            if row.held.cancel_requested:
                self.stopping[row.held.run_id].add(job_id)
        self.unfinished += 1
        if new.unique is not None:
            self.by_unique[new.kind, new.unique] = job_id
        if row.expires_at_ms is not None and not row.attempt and state is not _WAITING:
            self.expiring.add(rank_by_time(row.expires_at_ms, job_id))

    def _leave(self, row: Row) -> None:
        new, job_id, state = row.new, row.id, row.state
        if new.key is not None:
            del self.by_key[new.kind, new.key]
        if row.finished_at_ms is not None:
            rank = rank_by_time(row.finished_at_ms, job_id)
            self.finished[state].discard(rank)
            return
        if state is _RUNNABLE:
            rank = rank_by_priority(new.priority, row.run_at_ms, job_id)
            self.runnable[new.pool, new.kind].discard(rank)
        elif state is _PENDING:
            self.pending.discard(rank_by_time(row.run_at_ms, job_id))
        elif row.held is not None:
            self.held[row.held.run_id].discard(job_id)
            if row.held.cancel_requested:
                self.stopping[row.held.run_id].discard(job_id)
        self.unfinished -= 1
        if new.unique is not None:
            del self.by_unique[new.kind, new.unique]
        if row.expires_at_ms is not None and not row.attempt and state is not _WAITING:
            self.expiring.discard(rank_by_time(row.expires_at_ms, job_id))


class Tick(msgspec.Struct, frozen=True, gc=False):
    """A tick of a schedule. Fields that `records.TickRow` also has mean the same."""

    id: int
    schedule: int
    nominal_ms: int
    stored_ms: int
    state: TickState
    job_id: int | None = None
    job_state: JobState | None = None
    backfilled: bool = False
    ended_ms: int | None = None


class TickTable:
    """All ticks.

    Attributes:
        of: ids by nominal time, by schedule.
        open: ids of those that have not ended, by schedule.
    """

    def __init__(self) -> None:
        self._rows: dict[int, Tick] = {}
        self._last_id = 0
        self.of: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.open: defaultdict[int, set[int]] = defaultdict(set)

    def get(self, tick_id: int, /) -> Tick | None:
        """See `Table.get`."""
        return self._rows.get(tick_id)

    def take_id(self) -> int:
        """Return a fresh id."""
        self._last_id += 1
        return self._last_id

    def put(self, tick_id: int, tick: Tick | None) -> None:
        """See `Table.put`."""
        former = self._rows.pop(tick_id, None)
        if former is not None:
            del self.of[former.schedule][former.nominal_ms]
            self.open[former.schedule].discard(tick_id)
        if tick is not None:
            self._rows[tick_id] = tick
            self.of[tick.schedule][tick.nominal_ms] = tick_id
            if tick.ended_ms is None:
                self.open[tick.schedule].add(tick_id)

    def last(self, schedule: int) -> Tick | None:
        """Return a schedule's tick with the latest nominal time."""
        times = self.of.get(schedule)
        return self._rows[times[max(times)]] if times else None

    def unended(self, schedule: int) -> list[Tick]:
        """Return what of a schedule has not ended, oldest first."""
        ticks = (self._rows[tick_id] for tick_id in self.open.get(schedule, ()))
        return sorted(ticks, key=lambda tick: tick.nominal_ms)

    def skipped(self, before_ms: int) -> list[Tick]:
        """Return those that were skipped before a moment, oldest first."""
        ticks = (t for t in self._rows.values() if t.state is TickState.SKIPPED)
        old = (tick for tick in ticks if (tick.ended_ms or 0) < before_ms)
        return sorted(old, key=lambda tick: tick.ended_ms or 0)
