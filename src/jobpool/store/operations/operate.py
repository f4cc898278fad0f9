"""What operators change: cancel, revive, pause, resume."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from jobpool.core.jobs.job import JobState
from jobpool.store.operations.repair import Repairing
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Database, Depth
from jobpool.store.statements.validation import is_id, pausable


class Operating(Repairing):
    """The operators' part of the store."""

    _database: Database
    _depth: Depth
    _LOCK_JOBS: ClassVar[str | None] = None
    """The query that locks jobs until the commit, where there are other writers."""

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
            return ended + session.run("request_cancel", ids=wanted)

    def revive(self, ids: Iterable[int], states: Sequence[JobState]) -> int:
        """See `Store.revive`."""
        known = [job_id for job_id in ids if is_id(job_id)]
        return self._with_repair(
            lambda: self._revive(as_json(known), states), lambda _: known
        )

    def _revive(self, wanted: str, states: Sequence[JobState]) -> int:
        with self._database.writing() as session:
            if self._LOCK_JOBS:
                session.rows(self._LOCK_JOBS, ids=wanted)
            now_ms = self._database.now_ms(session)
            revived = session.run(
                "revive_jobs",
                ids=wanted,
                states=as_json(states),
                now_ms=now_ms,
            )
            if revived:
                session.run("forget_misfits", ids=wanted)
            self._depth.add(session, revived)
        return revived

    def pause(self, *, pool: str | None = None, kind: str | None = None) -> bool:
        """See `Store.pause`."""
        what, name = pausable(pool, kind)
        with self._database.writing() as session:
            return bool(session.run("pause", what=what, name=name))

    def resume(self, *, pool: str | None = None, kind: str | None = None) -> bool:
        """See `Store.resume`."""
        what, name = pausable(pool, kind)
        with self._database.writing() as session:
            return bool(session.run("resume", what=what, name=name))
