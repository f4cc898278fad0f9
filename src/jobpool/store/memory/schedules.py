"""Schedules and their ticks: as `store.operations.schedules`, on memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.formats import CODECS
from jobpool.core.jobs.job import JobState, NewJob
from jobpool.core.rules.lifecycle import TRANSITIONS, JobEvent
from jobpool.core.rules.schedules.schedule import (
    Declared,
    Progress,
    TickState,
    progress_of,
)
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.enqueue import Enqueueing
from jobpool.store.memory.tables.ticks import Tick
from jobpool.store.operations.schedules.publishing import (
    LIVING_MS,
    Changes,
    changes,
    newest_version,
    redefined,
    retired,
    taken,
)
from jobpool.store.operations.schedules.step import (
    Step,
    is_paused_so,
    past_times,
    paused,
    resumed,
    step,
)
from jobpool.store.operations.schedules.ticking import (
    AHEAD_MS,
    TICK_LIMIT,
    Done,
    Due,
    pause_s,
    ticked,
)
from jobpool.store.records.schedules import (
    JobTick,
    Published,
    ScheduleRow,
    Ticked,
    TickRow,
)
from jobpool.store.statements.schedules import (
    NewTick,
    StoredSchedule,
    StoredTick,
    check_schedules,
    definition_of,
    job_of,
    job_tick,
    no_schedule,
    record_of,
)
from jobpool.store.statements.validation import clean_text, pause_end_ms

_replace = msgspec.structs.replace
_CANCELED = "canceled for a later tick of its schedule"


class ScheduleKeeping(Enqueueing):
    """The part of the store that keeps schedules and enqueues what they say."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    def tick(self, limit: int | None = TICK_LIMIT) -> Ticked:
        """See `Store.tick`."""
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            due = self._due()
            if not due.is_due(now_ms):
                return Ticked(next_due_in_s=due.in_s(now_ms))
            found = sorted(
                (one for one in self._database.schedules.values() if self._is_due(one)),
                key=lambda one: (one.next_at_ms or 0, one.id),
            )
            known = self._database.ticks.of
            steps = [
                step(one, self._unended(one.id), now_ms, known[one.id])
                for one in found[:limit]
            ]
            enqueued = canceled = 0
            for one in steps:
                canceled += sum(self._cancel(i, now_ms) for i in one.cancel)
                enqueued += self._carry_out(one, now_ms)
            due = self._due()
        return ticked(steps, Done(enqueued, canceled), pause_s(steps, due, now_ms))

    def publish_schedules(
        self, run_id: str, declared: Sequence[Declared], *, again: bool = False
    ) -> Published:
        """See `Store.publish_schedules`."""
        self._ask_if_encoded(declared)
        with self._session.writing:
            check_schedules(declared, self._clock.utc_ms())
            run = self._database.runs.get(run_id)
            is_open = run is not None and run.ended_at_ms is None
            if run is None or run.application is None or not is_open:
                return Published(is_newest=False)
            seen = self._versions(run.application)
            if newest_version(seen) != (run.app_version or ""):
                return Published(is_newest=False)
            return self._apply(
                declared, run.application, run.app_version, again=again
            ).told()

    def put_schedule(self, declared: Declared) -> bool:
        """See `Store.put_schedule`."""
        self._ask_if_encoded([declared])
        with self._session.writing:
            check_schedules([declared], self._clock.utc_ms())
            found = self._apply([declared], None, None)
            if found.refused:
                raise taken(declared.name, self._named(declared.name).application)
        return not found.is_empty

    def schedules(self, name: str | None = None) -> list[ScheduleRow]:
        """See `Store.schedules`."""
        with self._session.reading:
            found = [
                record_of(one, self._tick_row(self._database.ticks.last(one.id)))
                for one in self._database.schedules.values()
                if name is None or one.name == name
            ]
        return sorted(found, key=lambda one: one.declared.name)

    def ticks(self, name: str, limit: int = 100) -> list[TickRow]:
        """See `Store.ticks`."""
        with self._session.reading:
            ticks = self._database.ticks
            rows = [
                row
                for one in self._database.schedules.values()
                if one.name == name
                for tick_id in ticks.of[one.id].values()
                if (row := self._tick_row(ticks.get(tick_id))) is not None
            ]
        return sorted(rows, key=lambda row: -row.nominal_ms)[:limit]

    def tick_of(self, job_id: int) -> JobTick | None:
        """See `Store.tick_of`."""
        with self._session.reading:
            job = self._database.jobs.get(job_id)
            tick_id = None if job is None else job.tick
            tick = None if tick_id is None else self._database.ticks.get(tick_id)
            of = None if tick is None else self._database.schedules.get(tick.schedule)
            if tick is None or of is None:
                return None
            return job_tick(of.name, tick.nominal_ms, of.rule, tick.backfilled)

    def pause_schedule(
        self,
        name: str,
        *,
        for_s: float | None = None,
        who: str | None = None,
        note: str | None = None,
    ) -> bool:
        """See `Store.pause_schedule`."""
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            stored = self._named(name)
            until_ms = pause_end_ms(now_ms, for_s)
            note = clean_text(note)
            if is_paused_so(stored, until_ms, note):
                return False
            self._put(paused(stored, now_ms, clean_text(who), note, until_ms))
        return True

    def resume_schedule(self, name: str, *, catch_up: bool = False) -> bool:
        """See `Store.resume_schedule`."""
        with self._session.writing:
            stored = self._named(name)
            if stored.paused_at_ms is None:
                return False
            self._put(resumed(stored, self._clock.utc_ms(), catch_up=catch_up))
        return True

    def remove_schedule(self, name: str) -> bool:
        """See `Store.remove_schedule`."""
        with self._session.writing:
            found = [s for s in self._database.schedules.values() if s.name == name]
            for stored in found:
                owner = stored.application if stored.retired_at_ms is None else None
                if owner is not None and self._versions(owner):
                    raise taken(name, owner)
                for tick_id in list(self._database.ticks.of[stored.id].values()):
                    self._database.put(self._database.ticks, tick_id, None)
                self._database.put(self._database.schedules, stored.id, None)
        return bool(found)

    def run_now(self, name: str) -> int:
        """See `Store.run_now`."""
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            stored = self._named(name)
            at_ms = now_ms
            while at_ms in self._database.ticks.of[stored.id]:
                at_ms += 1
            tick = self._add(NewTick(stored.id, at_ms, TickState.OPEN), now_ms)
            if tick is None:
                raise no_schedule(name)
            return self._begin(tick, job_of(stored.declared()), now_ms)

    def backfill(
        self, name: str, from_ms: int, to_ms: int, *, dry_run: bool = False
    ) -> int:
        """See `Store.backfill`."""
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            stored = self._named(name)
            times = past_times(
                stored,
                stored.declared(),
                now_ms,
                from_ms=from_ms,
                to_ms=to_ms,
                known=self._database.ticks.of[stored.id],
            )
            if times and not dry_run:
                for at_ms in times:
                    new = NewTick(
                        stored.id, at_ms, TickState.BUFFERED, is_backfilled=True
                    )
                    self._add(new, now_ms)
                if stored.paused_at_ms is None:
                    self._put(_replace(stored, next_at_ms=now_ms))
        return len(times)

    def restart_schedules(self, *, catch_up: bool) -> int:
        """See `Store.restart_schedules`."""
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            going = [
                one
                for one in self._database.schedules.values()
                if one.retired_at_ms is None and one.paused_at_ms is None
            ]
            for one in going:
                until_ms = one.paused_until_ms if catch_up else now_ms
                self._put(_replace(one, paused_until_ms=until_ms, next_at_ms=now_ms))
        return len(going)

    # -- schedules -------------------------------------------------------------------

    def _ask_if_encoded(self, declared: Sequence[Declared]) -> None:
        if any(one.codec for one in declared):
            self.require(CODECS)

    def _named(self, name: str) -> StoredSchedule:
        found = [s for s in self._database.schedules.values() if s.name == name]
        if not found:
            raise no_schedule(name)
        return found[0]

    def _put(self, stored: StoredSchedule) -> None:
        """Store how far a schedule is, as of now."""
        planned = _replace(stored, planned_at_ms=self._clock.utc_ms())
        self._database.put(self._database.schedules, stored.id, planned)

    def _versions(self, application: str) -> dict[str, int]:
        """Return the versions of living runs, with when each was first seen."""
        gone_ms = self._clock.utc_ms() - LIVING_MS
        seen: dict[str, int] = {}
        living: set[str] = set()
        for run in self._database.runs.values():
            if run.application != application:
                continue
            version = run.app_version or ""
            since_ms = self._database.app_since.get(run.id, run.started_at_ms)
            seen[version] = min(since_ms, seen.get(version, since_ms))
            if run.ended_at_ms is None and run.lease_until_ms > gone_ms:
                living.add(version)
        return {version: seen[version] for version in living}

    def _apply(
        self,
        declared: Sequence[Declared],
        application: str | None,
        app_version: str | None,
        *,
        again: bool = False,
    ) -> Changes:
        """Store what is declared; return what that has changed."""
        now_ms = self._clock.utc_ms()
        names = {one.name for one in declared}
        table = self._database.schedules
        stored = [
            one
            for one in table.values()
            if one.name in names
            or (application is not None and one.application == application)
        ]
        found = changes(declared, stored, application, again=again)
        for one in found.added:
            new = StoredSchedule(
                self._database.take_schedule_id(),
                updated_at_ms=now_ms,
                since_ms=now_ms,
                next_at_ms=now_ms,
                **definition_of(one, application, app_version)._asdict(),
            )
            self._put(new)
        for before, one in found.changed:
            definition = definition_of(one, application, app_version)._asdict()
            after = redefined(before, one, now_ms)
            self._put(_replace(after, updated_at_ms=now_ms, **definition))
        for gone in found.retired:
            for tick in self._database.ticks.unended(gone.id):
                if tick.state is TickState.BUFFERED:
                    self._end(tick, TickState.SKIPPED, None, now_ms)
            self._put(retired(gone, now_ms))
        return found

    # -- steps -----------------------------------------------------------------------

    def _due(self) -> Due:
        """Return what `schedules_due` says of a database."""
        schedules = self._database.schedules.values()
        going = [one for one in schedules if one.next_at_ms is not None]
        return Due(
            min((one.next_at_ms or 0 for one in going), default=None),
            max((one.planned_at_ms for one in going), default=None),
            any(one.waits for one in schedules),
            any(self._has_ended(one) for one in schedules),
        )

    def _is_due(self, stored: StoredSchedule) -> bool:
        now_ms, next_ms = self._clock.utc_ms(), stored.next_at_ms
        is_due = next_ms is not None and (
            next_ms <= now_ms or stored.planned_at_ms > now_ms + AHEAD_MS
        )
        return is_due or self._has_ended(stored)

    def _has_ended(self, stored: StoredSchedule) -> bool:
        """Say whether what a schedule waits for has come."""
        wanted = (
            {Progress.ENDED, Progress.DEAD},
            {Progress.ENDED, Progress.DEAD, Progress.RETRYING},
        )
        if not stored.waits:
            return False
        ticks = [t for t in self._unended(stored.id) if t.job_id is not None]
        return not ticks or any(t.progress in wanted[stored.waits - 1] for t in ticks)

    def _unended(self, schedule: int) -> list[StoredTick]:
        found = []
        for tick in self._database.ticks.unended(schedule):
            row = None if tick.job_id is None else self._database.jobs.get(tick.job_id)
            state = None if row is None else row.state
            progress = Progress.BUFFERED
            if tick.state is not TickState.BUFFERED:
                progress = progress_of(state, 0 if row is None else row.attempt)
            found.append(
                StoredTick(
                    tick.id,
                    schedule,
                    tick.nominal_ms,
                    tick.job_id,
                    tick.backfilled,
                    progress,
                    state,
                    None if row is None else row.finished_at_ms,
                    progress is Progress.RETRYING,
                )
            )
        return found

    def _carry_out(self, one: Step, now_ms: int) -> int:
        """Store what a step does; return how many jobs that has enqueued."""
        for tick_id, state, job_state, ended_ms in one.ended:
            if tick := self._database.ticks.get(tick_id):
                self._end(tick, state, job_state, ended_ms)
        begun = [self._database.ticks.get(tick_id) for tick_id in one.begun]
        for new in one.new:
            added = self._add(new, now_ms)
            begun.append(added if new.state is TickState.OPEN else None)
        starting = [tick for tick in begun if tick is not None]
        if one.job is not None:
            for tick in starting:
                self._begin(tick, one.job, now_ms)
        self._put(one.schedule)
        return len(starting)

    def _add(self, new: NewTick, now_ms: int) -> Tick | None:
        """Store a tick; None: it is there already."""
        ticks = self._database.ticks
        if new.nominal_ms in ticks.of[new.schedule]:
            return None
        is_over = new.state is TickState.SKIPPED
        tick = Tick(
            ticks.take_id(),
            new.schedule,
            new.nominal_ms,
            now_ms,
            new.state,
            backfilled=new.is_backfilled,
            ended_ms=now_ms if is_over else None,
        )
        self._database.put(ticks, tick.id, tick)
        return tick

    def _begin(self, tick: Tick, job: NewJob, now_ms: int) -> int:
        """Enqueue a tick's job, whatever the depth of the queue; return its id."""
        (stored,) = self._insert([job], now_ms)
        row = self._database.jobs[stored.id]
        self._database.put_job(row, _replace(row, tick=tick.id))
        opened = _replace(tick, state=TickState.OPEN, job_id=stored.id)
        self._database.put(self._database.ticks, tick.id, opened)
        return stored.id

    def _end(
        self, tick: Tick, state: TickState, job_state: JobState | None, ended_ms: int
    ) -> None:
        ended = _replace(tick, state=state, job_state=job_state, ended_ms=ended_ms)
        self._database.put(self._database.ticks, tick.id, ended)

    def _cancel(self, job_id: int, now_ms: int) -> bool:
        """Cancel a job for another tick; a running one when next checked."""
        row = self._database.jobs.get(job_id)
        following = None if row is None else TRANSITIONS[row.state][JobEvent.CANCEL]
        if row is None or following is None or row.finished_at_ms is not None:
            return False
        if row.held is not None:
            held = _replace(row.held, cancel_requested=True)
            self._database.put_job(row, _replace(row, held=held))
            return True
        ended = _replace(row.ended, reason=_CANCELED)
        self._database.put_job(
            row, _replace(row, state=following, finished_at_ms=now_ms, ended=ended)
        )
        return True

    def _tick_row(self, tick: Tick | None) -> TickRow | None:
        if tick is None:
            return None
        row = None if tick.job_id is None else self._database.jobs.get(tick.job_id)
        finished_ms = None if row is None else row.finished_at_ms
        return TickRow(
            nominal_ms=tick.nominal_ms,
            stored_ms=tick.stored_ms,
            state=tick.state if finished_ms is None else TickState.DONE,
            job_id=tick.job_id,
            job_state=tick.job_state or (None if row is None else row.state),
            backfilled=tick.backfilled,
            ended_ms=tick.ended_ms or finished_ms,
        )
