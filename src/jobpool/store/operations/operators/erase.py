"""Erasing: a finished job's row stays, for statistics, without anybody's data in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from jobpool.core.jobs.job import erased_reason
from jobpool.store.operations.repair import Repairing
from jobpool.store.records.operating import Belongings
from jobpool.store.statements.limits import values_from
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Database, Session
from jobpool.store.statements.validation import is_id


class Erasing(Repairing):
    """The part of the store that erases."""

    _database: Database
    _ERASURES: ClassVar[tuple[str, ...]]
    """The queries that delete what erased jobs have beside their rows."""
    _LOCK_JOBS: ClassVar[str | None] = None
    """The query that locks jobs until the commit, where there are other writers."""

    def belongings(self, ids: Iterable[int]) -> Belongings:
        """See `Store.belongings`."""
        known = as_json(job_id for job_id in ids if is_id(job_id))
        with self._database.reading() as session:
            ((attempts, outputs),) = session.rows("belongings", ids=known)
        return Belongings(attempts=attempts, outputs=outputs)

    def erase(self, ids: Iterable[int]) -> int:
        """See `Store.erase`."""
        known = [job_id for job_id in ids if is_id(job_id)]
        return self._with_repair(lambda: self._erase(as_json(known)), lambda _: known)

    def _erase(self, wanted: str) -> int:
        with self._database.writing() as session:
            session.run("erase_flows", ids=wanted)  # first: whoever prunes does so too
            if self._LOCK_JOBS:
                session.rows(self._LOCK_JOBS, ids=wanted)
            now_ms = self._database.now_ms(session)
            reason = erased_reason(now_ms)
            _forget_counted(session, wanted, now_ms)
            found = session.rows("erase_jobs", ids=wanted, reason=reason)
            erased = as_json(job_id for (job_id,) in found)
            for name in self._ERASURES:
                session.run(name, ids=erased)
        return len(found)


def _forget_counted(session: Session, wanted: str, now_ms: int) -> None:
    """Delete lanes, buckets and shares that say of nobody else what these jobs are by.

    Those that are in use go within a day after the last use.
    """
    session.run("forget_lanes", ids=wanted)
    values = {
        value
        for tenant, text in session.rows("counted_values", ids=wanted)
        for value in (tenant, *(values_from(text) or {}).values())
        if value
    }
    if values:
        session.run("forget_values", values=as_json(sorted(values)), now_ms=now_ms)
        session.run("forget_shares", values=as_json(sorted(values)))
