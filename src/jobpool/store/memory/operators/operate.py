"""What operators change: jobs, pauses, and the record of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.formats import CODECS, QUOTAS
from jobpool.core.jobs.job import UNFINISHED, JobState, NewJob, erased_reason
from jobpool.core.rules.lifecycle import TRANSITIONS, JobEvent
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.enqueue import Enqueueing
from jobpool.store.memory.flows.alone import has_added, is_settled, placed
from jobpool.store.memory.set_apart.misfits import MisfitKeeping
from jobpool.store.memory.tables.rows import Row, revived
from jobpool.store.records.operating import (
    AuditEntry,
    AuditFilter,
    AuditRow,
    Belongings,
    PauseRow,
    Replay,
)
from jobpool.store.records.reading import UnfinishedRow
from jobpool.store.records.runs import Position
from jobpool.store.statements.validation import (
    LIMITED,
    check_memory_bytes,
    check_new_jobs,
    clean_text,
    pausable,
    pause_end_ms,
)

_replace = msgspec.structs.replace


class Operating(Enqueueing, MisfitKeeping):
    """The operators' part of the store."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    def cancel(self, ids: Iterable[int]) -> int:
        """See `Store.cancel`."""
        with self._session.writing:
            now_ms, count = self._clock.utc_ms(), 0
            for job_id in set(ids):
                row = self._database.jobs.get(job_id)
                if row is None:
                    continue
                following = TRANSITIONS[row.state][JobEvent.CANCEL]
                if following is None:
                    continue
                if row.held is not None:  # The run that holds the lease ends it.
                    asked = _replace(row.held, cancel_requested=True)
                    canceled = _replace(row, held=asked)
                else:
                    canceled = _canceled(row, following, now_ms)
                self._database.put_job(row, canceled)
                count += 1
        return count

    def revive(
        self,
        ids: Iterable[int],
        states: Sequence[JobState],
        memory_bytes: int | None = None,
    ) -> int:
        """See `Store.revive`."""
        check_memory_bytes(memory_bytes)
        with self._session.writing:
            now_ms, count = self._clock.utc_ms(), 0
            for job_id in sorted(set(ids)):
                row = self._database.jobs.get(job_id)
                if row is None or row.state not in states or not row.new.payload:
                    continue
                if self._unique_is_taken(row):
                    continue
                if row.replaced_by is not None or is_settled(self._database, row):
                    continue
                following = TRANSITIONS[row.state][JobEvent.REVIVE]
                if following is not None:
                    fresh = revived(row, following, now_ms, memory_bytes)
                    self._database.put_job(row, placed(self._database, fresh))
                    self._forget_misfits([job_id])
                    self._reopen_tick(row)
                    count += 1
        return count

    def replay(self, replays: Sequence[Replay]) -> list[int | None]:
        """See `Store.replay`."""
        if any(one.new.codec is not None for one in replays):
            self.require(CODECS)
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            check_new_jobs([one.new for one in replays], now_ms)
            return [self._replay(one, now_ms) for one in replays]

    def _replay(self, replay: Replay, now_ms: int) -> int | None:
        table, new = self._database.jobs, replay.new
        old = table.get(replay.job_id)
        if old is None or old.state in UNFINISHED or old.replaced_by is not None:
            return None
        if not old.new.payload:  # it was erased
            return None
        if is_settled(self._database, old) or has_added(self._database, old):
            return None
        by_key = None if new.key is None else table.by_key.get((new.kind, new.key))
        if by_key not in {None, old.id}:
            return None
        if new.unique is not None and (new.kind, new.unique) in table.by_unique:
            return None
        without_key = _replace(old, new=_replace(old.new, key=None))
        self._database.put_job(old, without_key)
        (stored,) = self._insert([new], now_ms)
        row = table[stored.id]
        made = _replace(
            row,
            new=_replace(row.new, trace=old.new.trace),
            replays=old.id,
            tick=old.tick,
            step=old.step,
            generation=old.generation,
            added_by=old.added_by,
        )
        self._database.put_job(row, placed(self._database, made))
        self._reopen_tick(made)
        self._database.put_job(
            without_key, _replace(without_key, replaced_by=stored.id, tick=None)
        )
        return stored.id

    def _reopen_tick(self, row: Row) -> None:
        tick = None if row.tick is None else self._database.ticks.get(row.tick)
        if tick is not None:
            tick = _replace(
                tick,
                state=TickState.OPEN,
                job_id=row.id,
                job_state=None,
                ended_ms=None,
            )
            self._database.put(self._database.ticks, tick.id, tick)

    def _unique_is_taken(self, row: Row) -> bool:
        """Say whether another unfinished job holds its unique text."""
        unique = row.new.unique
        if unique is None:
            return False
        holder = self._database.jobs.by_unique.get((row.new.kind, unique), row.id)
        return holder != row.id

    def belongings(self, ids: Iterable[int]) -> Belongings:
        """See `Store.belongings`."""
        with self._session.reading:
            meant = set(ids)
            known = map(self._database.jobs.get, meant)
            tried = sum(len(row.tried) for row in known if row is not None)
            outputs = len(meant & self._database.outputs.keys())
        return Belongings(attempts=tried, outputs=outputs)

    def erase(self, ids: Iterable[int]) -> int:
        """See `Store.erase`."""
        with self._session.writing:
            reason, count = erased_reason(self._clock.utc_ms()), 0
            for job_id in set(ids):
                row = self._database.jobs.get(job_id)
                if row is not None and row.finished_at_ms is not None:
                    self._database.put_job(row, _erased(row, reason))
                    if job_id in self._database.outputs:
                        self._database.put(self._database.outputs, job_id, None)
                    count += 1
                    self._erase_flow_of(row)
        return count

    def _erase_flow_of(self, member: Row) -> None:
        """Forget whom a flow is for, once no job of it goes on."""
        step = None if member.step is None else self._database.steps.get(member.step)
        if step is None:
            return
        flow = self._database.flows[step.flow]
        jobs = self._database.jobs
        members = (job for one in flow.steps for job in jobs.members.get(one, ()))
        erased = _replace(flow, is_erased=True)
        if flow.finished_at_ms is not None or all(
            jobs[job].finished_at_ms is not None for job in members
        ):
            erased = _replace(erased, key=None, tenant=None)
        self._database.put(self._database.flows, flow.id, erased)

    def wipe(self, *, rewrite: bool = False) -> list[str]:
        """See `Store.wipe`: there are no files."""
        del rewrite
        return []

    def pause(
        self,
        *,
        pool: str | None = None,
        kind: str | None = None,
        tenant: str | None = None,
        quota: str | None = None,
        whole_store: bool = False,
        for_s: float | None = None,
        who: str | None = None,
        note: str | None = None,
    ) -> bool:
        """See `Store.pause`."""
        what = pausable(
            pool=pool, kind=kind, tenant=tenant, quota=quota, whole_store=whole_store
        )
        if what[0] in LIMITED:
            self.require(QUOTAS)
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            until_ms = pause_end_ms(now_ms, for_s)
            former = self._database.paused(now_ms).get(what)
            is_same = former is not None and former.until_ms == until_ms
            if former is not None and is_same and note in {None, former.note}:
                return False
            pause = PauseRow(
                what=what[0],
                name=what[1],
                since_ms=now_ms,
                until_ms=until_ms,
                who=who,
                note=note,
            )
            self._database.put(self._database.pauses, what, pause)
            if what[0] in LIMITED:
                self._database.change_limits()
        return True

    def resume(
        self,
        *,
        pool: str | None = None,
        kind: str | None = None,
        tenant: str | None = None,
        quota: str | None = None,
        whole_store: bool = False,
    ) -> bool:
        """See `Store.resume`."""
        what = pausable(
            pool=pool, kind=kind, tenant=tenant, quota=quota, whole_store=whole_store
        )
        with self._session.writing:
            is_paused = what in self._database.paused(self._clock.utc_ms())
            if is_paused:
                self._database.put(self._database.pauses, what, None)
            if is_paused and what[0] in LIMITED:
                self._database.change_limits()
        return is_paused

    def audit(self, entry: AuditEntry, audit_id: int | None = None) -> int:
        """See `Store.audit`."""
        with self._session.writing:
            audits = self._database.audits
            former = None if audit_id is None else audits.get(audit_id)
            if former is not None:
                row = _replace(
                    former,
                    target=entry.target,
                    jobs=entry.jobs,
                    changed=entry.changed,
                )
            else:
                row = AuditRow(
                    id=self._database.take_audit_id(),
                    at_ms=self._clock.utc_ms(),
                    **msgspec.structs.asdict(entry),
                )
            self._database.put(audits, row.id, row)
        return row.id

    def amend_audit(self, audit_id: int, *, target: str, note: str | None) -> None:
        """See `Store.amend_audit`."""
        with self._session.writing:
            row = self._database.audits.get(audit_id)
            if row is not None:
                amended = _replace(
                    row, target=clean_text(target) or "", note=clean_text(note)
                )
                self._database.put(self._database.audits, audit_id, amended)

    def audits(
        self, which: AuditFilter, limit: int = 100, before_id: int | None = None
    ) -> list[AuditRow]:
        """See `Store.audits`."""
        with self._session.reading:
            rows = sorted(self._database.audits.items(), reverse=True)
        found = (
            row
            for audit_id, row in rows
            if (before_id is None or audit_id < before_id)
            and (which.since_ms is None or row.at_ms >= which.since_ms)
            and (which.who is None or which.who in row.who)
            and which.action in {None, row.action}
        )
        return list(islice(found, limit))

    def clock_ms(self) -> int:
        """See `Store.clock_ms`."""
        return self._clock.utc_ms()

    def position(self) -> Position:
        """See `Store.position`."""
        with self._session.reading:
            database = self._database
            known = [run.heartbeat_at_ms for run in database.runs.values()]
            for row in database.jobs.newest_first():
                known += [row.created_at_ms, row.finished_at_ms or 0]
                known += [one.past.finished_at_ms for one in row.tried]
                known += [row.held.since_ms] if row.held else []
            return Position(
                now_ms=self._clock.utc_ms(),
                newest_ms=max(known, default=None),
                tokens=database.last_token,
                last_id=database.jobs.last_id,
                newest_id=next(
                    (row.id for row in database.jobs.newest_first()),
                    database.jobs.last_id,
                ),
                restores=database.restores,
            )

    def unfinished(self) -> list[UnfinishedRow]:
        """See `Store.unfinished`."""
        with self._session.reading:
            now_ms = self._clock.utc_ms()
            due: Counter[tuple[str, str]] = Counter()
            later: Counter[tuple[str, str]] = Counter()
            for row in self._database.jobs.newest_first():
                if row.state in UNFINISHED:
                    is_due = row.held is not None or row.run_at_ms <= now_ms
                    (due if is_due else later)[row.new.kind, row.new.pool] += 1
        return [
            UnfinishedRow(kind=kind, pool=pool, due=due[at], later=later[at])
            for at in sorted({*due, *later})
            for kind, pool in (at,)
        ]

    def begin_anew(self, *, tokens: int, last_id: int) -> None:
        """See `Store.begin_anew`."""
        with self._session.writing:
            self._database.begin_anew(tokens, last_id)


def _canceled(row: Row, state: JobState, now_ms: int) -> Row:
    ended = row.ended
    if ended.reason is None:
        ended = _replace(ended, reason="canceled on request")
    canceled: Row = _replace(row, state=state, finished_at_ms=now_ms, ended=ended)
    if (shared := row.shared) is not None and shared.waits:
        canceled = _replace(
            canceled,
            new=_replace(row.new, unique=shared.text),
            shared=_replace(shared, waits=False),
        )
    return canceled


def _erased(row: Row, reason: str) -> Row:
    """Return a finished job of which only what is listed here has stayed."""
    new, begun, ended = row.new, row.begun, row.ended
    return Row(
        id=row.id,
        new=NewJob(
            kind=new.kind,
            pool=new.pool,
            payload=b"",
            priority=new.priority,
            max_attempts=new.max_attempts,
            timeout_s=new.timeout_s,
            memory_bytes=new.memory_bytes,
        ),
        state=row.state,
        created_at_ms=row.created_at_ms,
        run_at_ms=row.run_at_ms,
        expires_at_ms=row.expires_at_ms,
        finished_at_ms=row.finished_at_ms,
        attempt=row.attempt,
        reset_attempt=row.reset_attempt,
        spent=row.spent,
        begun=_replace(begun, progress=None),
        ended=_replace(ended, reason=reason, error_class=None, error=None),
        snoozes=row.snoozes,
        snoozed_since_ms=row.snoozed_since_ms,
        replays=row.replays,
        replaced_by=row.replaced_by,
        step=row.step,
        generation=row.generation,
        added_by=row.added_by,
    )
