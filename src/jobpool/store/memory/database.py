"""The state that all store objects of one memory database share.

Theory of operation. There is one lock, and a writer holds it until its transaction
ends. Every change goes through `put`, which records the old and the new value in a
journal. A method that fails is undone to where it began, and a failed transaction to
its beginning; so a method may change things before it has checked everything.

Another thread waits for the lock. Another store object in the same thread would wait
for ever: so that it can read what is committed, the journal is undone, and redone after
the read. It cannot write.
"""

from __future__ import annotations

import os
import secrets
import threading
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from jobpool.core.formats import OLDEST
from jobpool.core.rules.circuit_breaker import Saved
from jobpool.core.rules.lifecycle import JobEvent, after
from jobpool.core.rules.quotas.definition import Tenant
from jobpool.core.rules.quotas.rules import Override
from jobpool.core.rules.run_report import RunReport
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.core.rules.usage.sketch import Counts
from jobpool.errors import StoreUnavailable, UsageError
from jobpool.store.memory.tables.flows import FlowTable, StepTable
from jobpool.store.memory.tables.jobs import JobTable
from jobpool.store.memory.tables.lanes import ShareKey
from jobpool.store.memory.tables.permits import Bucket, PermitTable
from jobpool.store.memory.tables.records import Records, Table
from jobpool.store.memory.tables.rows import Row
from jobpool.store.memory.tables.ticks import TickTable
from jobpool.store.records.alerts import AlertRow, Incident
from jobpool.store.records.jobs import KeptOutput
from jobpool.store.records.operating import AuditRow, PauseRow
from jobpool.store.records.runs import KindRecord, Run
from jobpool.store.statements.schedules import StoredSchedule

K = TypeVar("K")
V = TypeVar("V")
_STALE = "stale_settlements"
_LEAST, _WANTED = "min_format", "wanted_format"
_OUTPUTS = "output_kib"
_LIMITS = "limits_version"


class SetTenant(msgspec.Struct, frozen=True):
    """What was set for a tenant at run time."""

    tenant: Tenant
    who: str | None
    at_ms: int


class MemoryDatabase:
    """Jobs, runs, published kinds and pauses of one process.

    Args:
        name: what it is called in messages.

    Attributes:
        url: its name as a store's URL.
        ref_key: makes refs of ids.
        jobs: all jobs.
        runs: supervisors by id.
        reports: what they report of themselves, by run, and since when.
        waits: how long jobs waited, by slot, kind, pool and cause.
        waits_sampled: when that was last sampled.
        kinds: what they publish, by kind and run.
        pauses: by what they are of: ``("pool" | "kind", name)`` or ``("store", "")``.
        suspects: jobs that may have killed their host, and since when.
        misfits: jobs whose arguments did not fit a supervisor's version of the handler,
            with its digest: since when, and until when it leaves them to others.
        leaving: runs that drain or stop.
        deaths: of runs: when, and how many jobs died with them.
        outputs: what successful attempts have written, by job, with its end in the
            stream of all outputs, in KiB.
        sketches: what attempts have used, by week, kind, pool, measure and bucket.
        breakers: kinds that crash in a row, and when they are tried again.
        audits: what operators have done, by id.
        overrides: what was set of quotas at run time, by name.
        tenants: what was set of tenants, by name.
        buckets: of quotas, by id.
        permits: of buckets.
        shares: their virtual times, in fair pools.
        clocks: the virtual times that fair pools have come to, by priority.
        schedules: by id.
        ticks: those of all schedules.
        flows: by id.
        steps: those of all flows.
        flow_notes: steps that are to be looked at, since a member has ended.
        incidents: what is or was wrong, by id.
        alerts: what is told of that, by id.
        watch: who has looked last: turn, time, notes; one row.
        app_since: since when each run runs its version of its application.
        restores: how often `begin_anew` was called.
        commits: transactions so far that have changed something.
    """

    def __init__(self, name: str) -> None:
        self.url = f"memory:{name}"
        self.ref_key = secrets.token_bytes(16)
        self.jobs = JobTable()
        self.runs: Records[str, Run] = Records()
        self.renewals: Records[str, int] = Records()
        self.reports: Records[str, tuple[int, RunReport]] = Records()
        self.waits: Records[tuple[int, str, str, str], float] = Records()
        self.waits_sampled: Records[str, int] = Records()
        self.kinds: Records[tuple[str, str], KindRecord] = Records()
        self.pauses: Records[tuple[str, str], PauseRow] = Records()
        self.suspects: Records[int, int] = Records()
        self.misfits: Records[tuple[int, str], tuple[int, int]] = Records()
        self.leaving: Records[str, bool] = Records()
        self.deaths: Records[str, tuple[int, int]] = Records()
        self.outputs: Records[int, tuple[int, KeptOutput]] = Records()
        self.sketches: Records[tuple[int, str, str, str, int], Counts] = Records()
        self.breakers: Records[str, tuple[Saved, int]] = Records()
        self.audits: Records[int, AuditRow] = Records()
        self.overrides: Records[str, Override] = Records()
        self.tenants: Records[str, SetTenant] = Records()
        self.buckets: Records[int, Bucket] = Records()
        self.permits = PermitTable()
        self.shares: Records[ShareKey, float] = Records()
        self.clocks: Records[tuple[str, int], float] = Records()
        self.schedules: Records[int, StoredSchedule] = Records()
        self.ticks = TickTable()
        self.flows = FlowTable()
        self.steps = StepTable()
        self.flow_notes: Records[int, bool] = Records()
        self.incidents: Records[int, Incident] = Records()
        self.alerts: Records[int, AlertRow] = Records()
        self.watch: Records[str, tuple[int, int, str]] = Records()
        self.app_since: Records[str, int] = Records()
        self.commits = 0
        self.restores = 0
        self._counters: Records[str, int] = Records()
        self._last_token = 0
        self._last_audit_id = 0
        self._last_limits = 0
        self._last_schedule_id = 0
        self._last_incident_id = 0
        self._last_alert_id = 0
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._writer: object = None
        self._journal: list[tuple[Table[Any, Any], Any, Any, Any]] = []

    def refuse(self, connection: Any) -> None:
        """Refuse a caller's connection, if one is given.

        Raises:
            UsageError: it is.
        """
        if connection is not None:
            raise self.no_connections()

    def no_connections(self) -> UsageError:
        """Return the error for whoever passes a connection."""
        return UsageError(
            f"connection: the store {self.url} is in memory: no database's "
            "transaction can include it; leave the connection out, or use a store in "
            "that database. Nothing was enqueued"
        )

    # -- changes, by the writer -----------------------------------------------------

    def put(self, table: Table[K, V], key: K, record: V | None) -> None:
        """Change a record, recording it in the journal; None deletes it."""
        self._journal.append((table, key, table.get(key), record))
        table.put(key, record)

    def put_job(self, former: Row | None, row: Row) -> None:
        """Replace a job's row, recording it in the journal; None: it is new."""
        self._journal.append((self.jobs, row.id, former, row))
        self.jobs.swap(former, row)
        if row.step is not None and former is not None and _ends(former, row):
            self.note_step(row.step)
        if former is not None and former.new.unique is not None and _ends(former, row):
            self.pass_text_on(former.new.kind, former.new.unique)

    def pass_text_on(self, kind: str, text: str) -> bool:
        """Give a unique text that nobody has to the job that waits for it, if one does.

        Returns:
            Whether it was let go.
        """
        heir = self.jobs.waiting.get((kind, text))
        if heir is None or (kind, text) in self.jobs.by_unique:
            return False
        row = self.jobs[heir]
        shared = row.shared and msgspec.structs.replace(row.shared, waits=False)
        new = msgspec.structs.replace(row.new, unique=text)
        state = after(row.state, JobEvent.PROCEED)
        freed: Row = msgspec.structs.replace(row, state=state, new=new, shared=shared)
        self.put_job(row, freed)
        return True

    def note_step(self, step_id: int) -> None:
        """Have a step looked at, after those that were noted before."""
        if step_id not in self.flow_notes:
            self.put(self.flow_notes, step_id, record=True)

    def take_token(self) -> int:
        """Return a fresh token; tokens increase and are never given out twice.

        They are unique within this database only, whose jobs end with this process.
        """
        self._last_token += 1
        return self._last_token

    def take_audit_id(self) -> int:
        """Return a fresh id of an audit row."""
        self._last_audit_id += 1
        return self._last_audit_id

    def take_schedule_id(self) -> int:
        """Return a fresh id of a schedule."""
        self._last_schedule_id += 1
        return self._last_schedule_id

    def take_incident_id(self) -> int:
        """Return a fresh id of an incident."""
        self._last_incident_id += 1
        return self._last_incident_id

    def take_alert_id(self) -> int:
        """Return a fresh id of an alert."""
        self._last_alert_id += 1
        return self._last_alert_id

    @property
    def limits_version(self) -> int:
        """The version of what is published, set and paused of quotas and tenants."""
        return self._counters.get(_LIMITS, 0)

    def change_limits(self) -> None:
        """Count a change of that; a version that was undone does not come again."""
        self._last_limits += 1
        self.put(self._counters, _LIMITS, self._last_limits)

    def paused(self, now_ms: int) -> dict[tuple[str, str], PauseRow]:
        """Return the pauses that have not ended."""
        return {
            what: pause
            for what, pause in self.pauses.items()
            if pause.until_ms is None or pause.until_ms > now_ms
        }

    def keep_output(self, job_id: int, kib: int, kept: KeptOutput) -> None:
        """Store the output of a successful attempt."""
        place = self.newest_output + kib
        self.put(self._counters, _OUTPUTS, place)
        self.put(self.outputs, job_id, (place, kept))

    @property
    def newest_output(self) -> int:
        """The end of the stream of all outputs so far, in KiB."""
        return self._counters.get(_OUTPUTS, 0)

    def delete_job(self, job_id: int) -> None:
        """Delete a job with everything that belongs to it."""
        row = self.jobs[job_id]
        self._forget_tick(row)
        if row.step is not None and row.finished_at_ms is None:
            self.note_step(row.step)
        self.put(self.jobs, job_id, None)
        if job_id in self.outputs:
            self.put(self.outputs, job_id, None)

    def _forget_tick(self, row: Row) -> None:
        """Delete a job's tick; the last one of its schedule stays, and says its end."""
        tick = None if row.tick is None else self.ticks.get(row.tick)
        if tick is None:
            return
        if tick != self.ticks.last(tick.schedule):
            self.put(self.ticks, tick.id, None)
        elif tick.ended_ms is None:
            done = msgspec.structs.replace(
                tick,
                state=TickState.DONE,
                job_state=row.state,
                ended_ms=row.finished_at_ms,
            )
            self.put(self.ticks, tick.id, done)

    @property
    def last_token(self) -> int:
        """The last token that was given out."""
        return self._last_token

    def begin_anew(self, tokens: int, last_id: int) -> None:
        """Count a restore, and let tokens and ids go on after these."""
        self.restores += 1
        self._last_token = max(self._last_token, tokens)
        self.jobs.take_ids(last_id)
        self.flows.take_ids(last_id)

    @property
    def stale(self) -> int:
        """Settlements so far under a superseded token."""
        return self._counters.get(_STALE, 0)

    def count_stale(self, settlements: int) -> None:
        """Add to them."""
        self.put(self._counters, _STALE, self.stale + settlements)

    @property
    def least_format(self) -> int:
        """The least format that may lease."""
        return self._counters.get(_LEAST, OLDEST)

    @property
    def wanted_format(self) -> int:
        """The format that has been asked for."""
        return self._counters.get(_WANTED, OLDEST)

    def is_outdated(self, run: Run) -> bool:
        """Say whether a run's format is below the least."""
        return run.format < self.least_format

    def want_format(self, wanted: int) -> None:
        """Raise the wanted format; it only rises."""
        self.put(self._counters, _WANTED, max(wanted, self.wanted_format))

    def grant_format(self, granted: int) -> None:
        """Raise the least format; it only rises."""
        self.put(self._counters, _LEAST, max(granted, self.least_format))

    # -- locks and transactions --------------------------------------------------------

    @property
    def process_id(self) -> int:
        """The id of the process that it belongs to."""
        return self._pid

    def check_process(self) -> None:
        """Refuse a forked child, whose changes no supervisor would ever see.

        Raises:
            UsageError: this is not the process that created it.
        """
        if os.getpid() != self._pid:
            raise UsageError(
                f"the store {self.url} lives in the memory of process {self._pid}; "
                f"this is process {os.getpid()}, forked from it, where no supervisor "
                "would see its jobs: use it there, or a store on disk"
            )

    def begin(self, writer: object) -> int:
        """Wait until *writer* may write; return its mark in the journal.

        Raises:
            StoreUnavailable: another store object's transaction is open in this very
                thread.
        """
        self._lock.acquire()
        if self._writer is None:
            self._writer = writer
        elif self._writer is not writer:
            self._lock.release()
            raise StoreUnavailable(
                f"the store {self.url} is in a transaction that this thread has begun "
                "with another store object, and would wait for itself; end it first. "
                "Nothing happened"
            )
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Undo every change since *mark*, newest first."""
        self.jobs.repair_indexes()
        while len(self._journal) > mark:
            table, key, former, _ = self._journal[-1]
            table.put(key, former)
            self._journal.pop()

    def commit(self) -> bool:
        """Make every change since the outermost `begin` permanent.

        Returns:
            Whether there was one.
        """
        has_changed = bool(self._journal)
        self._journal.clear()
        self.commits += has_changed
        return has_changed

    def leave(self, *, is_outermost: bool) -> None:
        """Release the lock taken by `begin`; the outermost writer ends its turn."""
        if is_outermost:
            self._writer = None
        self._lock.release()

    def begin_reading(self, reader: object) -> bool:
        """Wait until *reader* may read what is committed, or its own transaction.

        Returns:
            Whether another store object's open transaction was undone for it.
        """
        self._lock.acquire()
        is_foreign = self._writer is not None and self._writer is not reader
        if is_foreign:
            for table, key, former, _ in reversed(self._journal):
                table.put(key, former)
        return is_foreign

    def end_reading(self, *, was_set_aside: bool) -> None:
        """End what `begin_reading` has begun, and redo what it has undone."""
        if was_set_aside:
            for table, key, _, record in self._journal:
                table.put(key, record)
        self._lock.release()


def _ends(former: Row, row: Row) -> bool:
    """Say whether a change of a job is its end."""
    return former.finished_at_ms is None and row.finished_at_ms is not None


class Session:
    """One store object's access to the database: reading, writing, transactions.

    Attributes:
        database: what it uses.
        reading: context manager: nothing changes while it is open.
        writing: context manager: all changes happen or, after an exception, none;
            re-entrant.
        commits: own transactions so far that have changed something.
    """

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database
        self.commits = 0
        self.reading = _Reading(self)
        self.writing = _Writing(self)
        self._is_closed = False

    def check(self) -> None:
        """Refuse a use after `close`, or in a forked child.

        Raises:
            UsageError: it is one.
        """
        self.database.check_process()
        if self._is_closed:
            raise UsageError(
                f"the store on {self.database.url} is closed; open another one"
            )

    def close(self) -> None:
        """Close it; calling this again has no effect."""
        self._is_closed = True


class _Reading:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._set_aside: list[bool] = []

    def __enter__(self) -> None:
        self._session.check()
        is_foreign = self._session.database.begin_reading(self._session)
        self._set_aside.append(is_foreign)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.database.end_reading(was_set_aside=self._set_aside.pop())


class _Writing:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._marks: list[int] = []
        """Where each open method begins in the journal, outermost first."""

    def __enter__(self) -> None:
        self._session.check()
        self._marks.append(self._session.database.begin(self._session))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        session = self._session
        mark = self._marks.pop()
        is_outermost = not self._marks
        try:
            if kind is not None:
                session.database.undo(mark)
            if is_outermost:
                session.commits += session.database.commit()
        finally:
            session.database.leave(is_outermost=is_outermost)
