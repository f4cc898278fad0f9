"""Schedules as applications and people change them, and as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from jobpool.core.formats import CODECS
from jobpool.core.rules.schedules.schedule import Declared, TickState
from jobpool.errors import StoreUnavailable, UsageError
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
    is_paused_so,
    past_times,
    paused,
    resumed,
)
from jobpool.store.operations.schedules.ticking import Ticking
from jobpool.store.records.schedules import JobTick, Published, ScheduleRow, TickRow
from jobpool.store.statements.parameters import Blobs, as_json
from jobpool.store.statements.schedules import (
    NewTick,
    StoredSchedule,
    check_schedules,
    definition_of,
    job_of,
    job_tick,
    no_schedule,
    read_schedules,
    schedule_from,
    tick_from,
)
from jobpool.store.statements.session import Row, Session
from jobpool.store.statements.validation import clean_text, pause_end_ms, storable

_TRIES = 3
"""How often names are looked up again that others take at this moment."""


class ScheduleKeeping(Ticking):
    """The part of the store that keeps schedules."""

    _LOCK_PUBLISHED: ClassVar[str] = "published"
    """The query that reads them, and locks them where there are other writers."""

    def publish_schedules(
        self, run_id: str, declared: Sequence[Declared], *, again: bool = False
    ) -> Published:
        """See `Store.publish_schedules`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            check_schedules(declared, now_ms)
            publisher = _publisher(session, run_id, now_ms)
            if publisher is None:
                return Published(is_newest=False)
            found = self._changes(
                session, "published", declared, publisher[0], again=again
            )
        if found.is_empty:
            return found.told()
        self._ask_if_encoded(declared)
        with self._database.writing() as session:
            publisher = _publisher(session, run_id, self._database.now_ms(session))
            if publisher is None:
                return Published(is_newest=False)
            return self._apply(session, declared, *publisher, again=again).told()

    def put_schedule(self, declared: Declared) -> bool:
        """See `Store.put_schedule`."""
        self._ask_if_encoded([declared])
        with self._database.writing() as session:
            check_schedules([declared], self._database.now_ms(session))
            found = self._apply(session, [declared], None, None)
            if found.refused:
                (row,) = self._rows(session, "published", [declared.name], None)
                raise taken(declared.name, row.application)
        return not found.is_empty

    def schedules(self, name: str | None = None) -> list[ScheduleRow]:
        """See `Store.schedules`."""
        with self._database.reading() as session:
            rows = session.rows("find_schedules", name=clean_text(name))
        return [found for row in rows if (found := schedule_from(row)) is not None]

    def ticks(self, name: str, limit: int = 100) -> list[TickRow]:
        """See `Store.ticks`."""
        with self._database.reading() as session:
            rows = session.rows("find_ticks", name=clean_text(name), limit=limit)
        return [found for row in rows if (found := tick_from(row)) is not None]

    def tick_of(self, job_id: int) -> JobTick | None:
        """See `Store.tick_of`."""
        with self._database.reading() as session:
            rows = session.rows("tick_of_job", id=storable(job_id))
        return job_tick(*rows[0]) if rows else None

    def pause_schedule(
        self,
        name: str,
        *,
        for_s: float | None = None,
        who: str | None = None,
        note: str | None = None,
    ) -> bool:
        """See `Store.pause_schedule`."""
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            stored = self._locked(session, name)
            until_ms = pause_end_ms(now_ms, for_s)
            note = clean_text(note)
            if is_paused_so(stored, until_ms, note):
                return False
            after = paused(stored, now_ms, clean_text(who), note, until_ms)
            _store_progress(session, [after], now_ms)
        return True

    def resume_schedule(self, name: str, *, catch_up: bool = False) -> bool:
        """See `Store.resume_schedule`."""
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            stored = self._locked(session, name)
            if stored.paused_at_ms is None:
                return False
            after = resumed(stored, now_ms, catch_up=catch_up)
            _store_progress(session, [after], now_ms)
        return True

    def remove_schedule(self, name: str) -> bool:
        """See `Store.remove_schedule`."""
        with self._database.writing() as session:
            found = self._rows(session, self._LOCK_PUBLISHED, [name], None)
            for stored in found:
                if self._is_declared(session, stored):
                    raise taken(name, stored.application)
                session.run("delete_ticks", id=stored.id)
                session.run("delete_schedule", id=stored.id)
        return bool(found)

    def run_now(self, name: str) -> int:
        """See `Store.run_now`."""
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            stored = self._locked(session, name)
            job = job_of(_readable(stored))
            at_ms = now_ms
            added: list[Row] = []
            while not added:
                tick = NewTick(stored.id, at_ms, TickState.OPEN)
                rows = as_json([tick.row(now_ms)])
                added = session.rows("insert_ticks", rows=rows, now_ms=now_ms)
                at_ms += 1
            (job_id,) = self._begin_ticks(session, [(added[0][0], job)])
        return job_id

    def backfill(
        self, name: str, from_ms: int, to_ms: int, *, dry_run: bool = False
    ) -> int:
        """See `Store.backfill`."""
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            stored = self._locked(session, name)
            span = {"from_ms": from_ms, "to_ms": to_ms}
            known = session.rows("stored_ticks", id=stored.id, **span)
            times = past_times(
                stored,
                _readable(stored),
                now_ms,
                known={at_ms for (at_ms,) in known},
                **span,
            )
            if times and not dry_run:
                new = [
                    NewTick(stored.id, at_ms, TickState.BUFFERED, is_backfilled=True)
                    for at_ms in times
                ]
                rows = as_json(tick.row(now_ms) for tick in new)
                session.rows("insert_ticks", rows=rows, now_ms=now_ms)
                if stored.paused_at_ms is None:
                    after = msgspec.structs.replace(stored, next_at_ms=now_ms)
                    _store_progress(session, [after], now_ms)
        return len(times)

    def restart_schedules(self, *, catch_up: bool) -> int:
        """See `Store.restart_schedules`."""
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            return session.run("restart_schedules", catch_up=catch_up, now_ms=now_ms)

    def _ask_if_encoded(self, declared: Sequence[Declared]) -> None:
        """Ask for codecs before jobs are made that need them."""
        if any(one.codec for one in declared) and self._granted < CODECS:
            self._ask_for(CODECS)

    def _is_declared(self, session: Session, stored: StoredSchedule) -> bool:
        """Say whether an application declares a schedule that runs."""
        if stored.application is None or stored.retired_at_ms is not None:
            return False
        gone_ms = self._database.now_ms(session) - LIVING_MS
        return bool(
            session.rows(
                "application_versions", application=stored.application, gone_ms=gone_ms
            )
        )

    def _locked(self, session: Session, name: str) -> StoredSchedule:
        """Return a schedule, locked.

        Raises:
            UsageError: there is none of that name.
        """
        found = self._rows(session, self._LOCK_PUBLISHED, [name], None)
        if not found:
            raise no_schedule(name)
        return found[0]

    def _rows(
        self,
        session: Session,
        query: str,
        names: Sequence[str],
        application: str | None,
    ) -> list[StoredSchedule]:
        """Return an application's schedules, and others of these names."""
        wanted = as_json(clean_text(name) for name in names)
        rows = session.rows(query, application=application, names=wanted)
        found, unreadable = read_schedules(rows)
        if unreadable and query == self._LOCK_PUBLISHED:
            for row in unreadable:
                session.run("delete_schedule", id=row[0])
                self._note(f"schedule {row[0]}", "deleted")
        return found

    def _changes(
        self,
        session: Session,
        query: str,
        declared: Sequence[Declared],
        application: str | None,
        *,
        again: bool,
    ) -> Changes:
        names = [one.name for one in declared]
        stored = self._rows(session, query, names, application)
        return changes(declared, stored, application, again=again)

    def _apply(
        self,
        session: Session,
        declared: Sequence[Declared],
        application: str | None,
        app_version: str | None,
        *,
        again: bool = False,
    ) -> Changes:
        """Store what is declared; return what that has changed."""
        now_ms = self._database.now_ms(session)
        for _ in range(_TRIES):
            found = self._changes(
                session, self._LOCK_PUBLISHED, declared, application, again=again
            )
            blobs = Blobs()
            rows = [
                definition_of(one, application, app_version).row(blobs)
                for one in found.added
            ]
            given = {"rows": as_json(rows), "blobs": blobs.joined(), "now_ms": now_ms}
            if not rows or len(session.rows("insert_schedules", **given)) == len(rows):
                break
        else:
            raise StoreUnavailable(
                "other schedules of these names come and go too fast; try again"
            )
        after = [redefined(*pair, now_ms) for pair in found.changed]
        if after:
            blobs = Blobs()
            rows = [
                definition_of(one, application, app_version).row(blobs)
                for _, one in found.changed
            ]
            given = {"rows": as_json(rows), "blobs": blobs.joined(), "now_ms": now_ms}
            session.run("define_schedules", **given)
        gone = [retired(one, now_ms) for one in found.retired]
        if gone:
            ids = as_json(one.id for one in gone)
            session.run("skip_ticks_of", ids=ids, now_ms=now_ms)
        if after or gone:
            _store_progress(session, [*after, *gone], now_ms)
        return found


def _publisher(
    session: Session, run_id: str, now_ms: int
) -> tuple[str, str | None] | None:
    """Return a run's application and its version, if that decides what is declared."""
    for application, version in session.rows("publisher", run_id=run_id):
        seen = session.rows(
            "application_versions", application=application, gone_ms=now_ms - LIVING_MS
        )
        # A time that cannot be read, since another program has written it, is none.
        known = {one: ms if isinstance(ms, int) else 0 for one, ms in seen}
        if newest_version(known) == (version or ""):
            return application, version
    return None


def _readable(stored: StoredSchedule) -> Declared:
    try:
        return stored.declared()
    except msgspec.MsgspecError as exc:
        raise UsageError(
            f"schedule {stored.name!r}: its row cannot be read, since another program "
            "has written it; put it again. Nothing was changed"
        ) from exc


def _store_progress(
    session: Session, after: Sequence[StoredSchedule], now_ms: int
) -> None:
    rows = as_json(one.progress() for one in after)
    session.run("plan_schedules", rows=rows, now_ms=now_ms)
