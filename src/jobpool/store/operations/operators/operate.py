"""What operators change: cancel, revive, pause, resume; and the record of that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from jobpool.core.formats import QUOTAS
from jobpool.core.jobs.job import JobState
from jobpool.store.operations.operators.replay import Replaying
from jobpool.store.operations.operators.restore import Restoring
from jobpool.store.operations.quotas.in_force import change_rules
from jobpool.store.records.operating import AuditEntry, AuditFilter, AuditRow
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import records
from jobpool.store.statements.session import Database, Depth
from jobpool.store.statements.validation import (
    ID_MAX,
    check_memory_bytes,
    clean_text,
    is_id,
    pausable,
    pause_end_ms,
)

_OF_QUOTAS = frozenset({"tenant", "quota"})
"""What is paused by the rules of quotas."""


class Operating(Replaying, Restoring):
    """The operators' part of the store."""

    _database: Database
    _depth: Depth

    def cancel(self, ids: Iterable[int]) -> int:
        """See `Store.cancel`."""
        known = [job_id for job_id in ids if is_id(job_id)]
        return self._with_repair(lambda: self._cancel(as_json(known)), lambda _: known)

    def _cancel(self, wanted: str) -> int:
        with self._database.writing() as session:
            if self._LOCK_JOBS:
                session.rows(self._LOCK_JOBS, ids=wanted)
            now_ms = self._database.now_ms(session)
            ended = session.run("cancel_waiting", ids=wanted, now_ms=now_ms)
            session.run("keep_texts", ids=wanted)
            session.run("end_waits", ids=wanted)
            return ended + session.run("request_cancel", ids=wanted)

    def revive(
        self,
        ids: Iterable[int],
        states: Sequence[JobState],
        memory_bytes: int | None = None,
    ) -> int:
        """See `Store.revive`."""
        check_memory_bytes(memory_bytes)
        known = [job_id for job_id in ids if is_id(job_id)]
        return self._with_repair(
            lambda: self._revive(as_json(known), states, memory_bytes), lambda _: known
        )

    def _revive(
        self, wanted: str, states: Sequence[JobState], memory_bytes: int | None
    ) -> int:
        with self._database.writing() as session:
            self._lock_again(session, wanted)
            now_ms = self._database.now_ms(session)
            revived = session.run(
                "revive_jobs",
                ids=wanted,
                states=as_json(states),
                now_ms=now_ms,
                memory_bytes=memory_bytes,
            )
            if revived:
                session.run("forget_misfits", ids=wanted)
                session.run("reopen_ticks", ids=wanted)
                session.run("note_waiting", ids=wanted)
            self._depth.add(session, revived)
        return revived

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
        what, name = pausable(
            pool=pool, kind=kind, tenant=tenant, quota=quota, whole_store=whole_store
        )
        if what in _OF_QUOTAS:
            self.require(QUOTAS)
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            changed = session.run(
                "pause",
                what=what,
                name=name,
                now_ms=now_ms,
                until_ms=pause_end_ms(now_ms, for_s),
                who=clean_text(who),
                note=clean_text(note),
            )
            if changed and what in _OF_QUOTAS:
                change_rules(session)
        return bool(changed)

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
        what, name = pausable(
            pool=pool, kind=kind, tenant=tenant, quota=quota, whole_store=whole_store
        )
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            was_paused = session.run("resume", what=what, name=name, now_ms=now_ms)
            if was_paused and what in _OF_QUOTAS:
                change_rules(session)
        return bool(was_paused)

    def audit(self, entry: AuditEntry, audit_id: int | None = None) -> int:
        """See `Store.audit`."""
        fields = {
            name: clean_text(value) if isinstance(value, str) else value
            for name, value in msgspec.structs.asdict(entry).items()
        }
        with self._database.writing() as session:
            if audit_id is not None:
                grown = {name: fields[name] for name in ("target", "jobs", "changed")}
                found = session.rows("extend_audit", id=audit_id, **grown)
                if found:
                    return audit_id
            now_ms = self._database.now_ms(session)
            ((added,),) = session.rows("add_audit", now_ms=now_ms, **fields)
        return int(added)

    def amend_audit(self, audit_id: int, *, target: str, note: str | None) -> None:
        """See `Store.amend_audit`."""
        with self._database.writing() as session:
            session.run(
                "amend_audit",
                id=audit_id,
                target=clean_text(target),
                note=clean_text(note),
            )

    def audits(
        self, which: AuditFilter, limit: int = 100, before_id: int | None = None
    ) -> list[AuditRow]:
        """See `Store.audits`."""
        with self._database.reading() as session:
            rows = session.rows(
                "find_audits",
                before_id=ID_MAX if before_id is None else before_id,
                since_ms=which.since_ms,
                who=clean_text(which.who),
                action=clean_text(which.action),
                limit=limit,
            )
        return records(AuditRow, rows)
