"""Supervisors' runs and the kinds that they publish; pruning of old rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import FINISHED
from jobpool.errors import JobpoolBug, StoreRefused, UsageError
from jobpool.store.operations.repair import Repairing
from jobpool.store.records import KindRecord, Renewal, Run
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import run_from
from jobpool.store.statements.session import Database, Row, Session
from jobpool.store.statements.validation import clean_text

_RUN_KEPT_MS = 86_400_000
"""An ended run is kept for a day."""


class RunKeeping(Repairing):
    """The part of the store that tracks supervisors, and prunes."""

    _database: Database
    _LOCK_RUN: ClassVar[str | None] = None
    """The query that blocks new leases of a run, where there are other writers."""
    _DELETIONS: ClassVar[tuple[str, ...]]
    """The queries that delete jobs with everything that belongs to them, in order."""
    _LEFT_OVER: ClassVar[tuple[str, ...]] = ()
    """Queries that delete leftovers of ended leases whose jobs still exist."""

    def begin_run(self, run: Run, kinds: Sequence[KindRecord], ttl_s: float) -> None:
        """See `Store.begin_run`."""
        rows = [
            (
                kind.kind,
                kind.pool,
                clean_text(kind.schema.decode("utf-8", "replace")),
                kind.timeout_s,
                kind.memory_bytes,
                kind.max_attempts,
                kind.max_crashes,
                kind.schema_digest,
            )
            for kind in {kind.kind: kind for kind in kinds}.values()
        ]
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            begun = session.rows(
                "begin_run",
                id=run.id,
                host=clean_text(run.host),
                boot_id=run.boot_id,
                pid=run.pid,
                pid_namespace=run.pid_namespace,
                version=run.version,
                pools=msgspec.json.encode(run.pools).decode(),
                now_ms=now_ms,
                lease_until_ms=now_ms + round(ttl_s * 1000),
            )
            if not begun:
                raise UsageError(
                    f"run {run.id} has ended and cannot begin again; every start "
                    "needs a fresh id"
                )
            session.run("withdraw_kinds", run_id=run.id)
            session.run(
                "publish_kinds", run_id=run.id, rows=as_json(rows), now_ms=now_ms
            )
            session.run("wake_misfits", run_id=run.id, now_ms=now_ms)

    def renew(self, run_id: str, ttl_s: float, *, anew: bool = False) -> Renewal:
        """See `Store.renew`."""
        with self._database.writing() as session:
            found = session.rows("lease_until", run_id=run_id)
            if not found:
                has_ended(session, run_id)  # Refuses a run that is unknown here.
                return Renewal.ENDED
            until_ms = _moment(found[0][0])
            now_ms = self._database.now_ms(session, fresh=True)
            is_held = until_ms > now_ms
            if is_held or anew:
                until_ms = now_ms + round(ttl_s * 1000)
            session.run("renew", run_id=run_id, now_ms=now_ms, lease_until_ms=until_ms)
        return Renewal.HELD if is_held else Renewal.LAPSED

    def end_run(self, run_id: str) -> None:
        """See `Store.end_run`."""
        with self._database.writing() as session:
            if self._LOCK_RUN:
                session.rows(self._LOCK_RUN, run_id=run_id)
            if session.value("count_leases", run_id=run_id):
                self._readable_leases(session, run_id)
            if held := session.value("count_leases", run_id=run_id):
                raise JobpoolBug(
                    f"run {run_id} ends while it holds {held} leases; settle them "
                    "first. Please report this"
                )
            session.run("end_run", run_id=run_id, now_ms=self._database.now_ms(session))

    def open_runs(self) -> list[Run]:
        """See `Store.open_runs`."""
        with self._database.reading() as session:
            rows = session.rows("open_runs")
            now_ms = self._database.now_ms(session)
        return [run for row in rows if (run := run_from(row, now_ms))]

    def expired_runs(self) -> list[Run]:
        """See `Store.expired_runs`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            rows = session.rows("expired_runs", now_ms=now_ms)
        return [run for row in rows if (run := run_from(row, now_ms))]

    def seize(
        self, run_id: str, *, by: str | None = None, lapsed_s: float = 0.0
    ) -> bool:
        """See `Store.seize`."""
        with self._database.writing() as session:
            found = session.rows("seize", run_id=run_id, by=by)
            if not found:
                return False
            until_ms, own_until_ms = map(_moment, found[0])
            now_ms = self._database.now_ms(session)
            is_holding = by is None or own_until_ms > now_ms
            return is_holding and until_ms + round(lapsed_s * 1000) <= now_ms

    def cancel_requests(self, run_id: str) -> list[int]:
        """See `Store.cancel_requests`."""
        with self._database.reading() as session:
            rows = session.rows("cancel_requests", run_id=run_id)
        return [token for (token,) in rows if isinstance(token, int)]

    def prune(self, retention: Retention, limit: int = 1000) -> int:
        """See `Store.prune`."""
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            old = _old_jobs(session, retention, now_ms, limit)
            if old:
                ids = as_json(old)
                for name in self._DELETIONS:
                    session.run(name, ids=ids)
            for name in self._LEFT_OVER:
                session.run(name)
            session.run("prune_suspects")
            session.run("prune_misfits")
            session.run("prune_running")
            session.run("prune_kinds", before_ms=now_ms - _RUN_KEPT_MS)
            session.run("prune_runs", before_ms=now_ms - _RUN_KEPT_MS)
        return len(old)


def _moment(value: object) -> int:
    """Return a moment from the database; 0 for a value that is not one."""
    return value if isinstance(value, int) else 0


def _old_jobs(
    session: Session, retention: Retention, now_ms: int, limit: int
) -> list[int]:
    """Return finished jobs to delete: older than kept, or beyond the count kept."""
    old: list[int] = []
    for state in FINISHED:
        room = limit - len(old)
        kept_s: float | None = getattr(retention, f"{state}_s")
        count: int | None = getattr(retention, f"{state}_count")
        aged: Sequence[Row] = ()
        if kept_s is not None and room > 0:
            before_ms = now_ms - round(kept_s * 1000)
            aged = session.rows(f"old_{state}", before_ms=before_ms, limit=room)
        surplus: Sequence[Row] = ()
        if count is not None and len(aged) < room:
            surplus = session.rows(f"surplus_{state}", count=count, limit=room)
        # Either are the oldest of their state: the longer list contains the other.
        old += [job_id for (job_id,) in max(aged, surplus, key=len)]
    return old


def has_ended(session: Session, run_id: str) -> bool:
    """Say whether a run has ended.

    Raises:
        StoreRefused: the run is unknown: this is not the store in which it began.
    """
    found = session.rows("run_has_ended", run_id=run_id)
    return bool(known(session, run_id, found)[0])


def known(session: Session, run_id: str, found: Sequence[Row]) -> Row:
    """Return the one row that was found for a run.

    Raises:
        StoreRefused: there is none.
    """
    if not found:
        raise StoreRefused(
            f"the store {session.place} does not know run {run_id}: the database was "
            "recreated or restored while it ran; restart jobpool"
        )
    return found[0]
