"""Misfits: jobs whose arguments did not fit a supervisor's version of the handler."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.jobs.job import JobState, Settlement
from jobpool.core.rules.repairs.misfit import Knowledge, wait_for
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.tables.rows import Row
from jobpool.store.records.jobs import MisfitRow

_WAITING = (JobState.PENDING, JobState.RUNNABLE)


class MisfitKeeping:
    """The part of the store that leaves misfits to other supervisors."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    @property
    @abstractmethod
    def one_host(self) -> bool:
        """See `Store.one_host`."""

    def misfits(self) -> list[MisfitRow]:
        """See `Store.misfits`."""
        groups: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        with self._session.reading:
            for (job_id, _), (since_ms, _) in self._database.misfits.items():
                row = self._database.jobs.get(job_id)
                if row is not None and row.state in _WAITING:
                    jobs = groups[row.new.pool, row.new.kind]
                    jobs[job_id] = min(since_ms, jobs.get(job_id, since_ms))
        return [
            MisfitRow(pool=pool, kind=kind, jobs=len(jobs), since_ms=min(jobs.values()))
            for (pool, kind), jobs in sorted(groups.items())
        ]

    def _handed_on(self, row: Row, s: Settlement, now_ms: int) -> Settlement:
        """Return the settlement to store: a misfit may be handed back instead of ended.

        Args:
            row: the job, leased.
            s: how it ended.
            now_ms: the store's clock.
        """
        if s.unknown_for_ms is None or row.held is None:
            return s
        digest = self._digest_of(row.new.kind, row.held.run_id)
        known = Knowledge(
            digest, self._unfit_since_ms(row.id), self._is_elsewhere(row, now_ms)
        )
        wait = wait_for(s, known, now_ms)
        if wait is None or digest is None:
            return s
        span = (wait.since_ms, wait.until_ms)
        self._database.put(self._database.misfits, (row.id, digest), span)
        return wait.settlement

    def _digest_of(self, kind: str, run_id: str) -> str | None:
        published = self._database.kinds.get((kind, run_id))
        return None if published is None else published.schema_digest

    def _unfit_since_ms(self, job_id: int) -> int | None:
        table = self._database.misfits
        if not table:
            return None
        found = (since for (one, _), (since, _) in table.items() if one == job_id)
        return min(found, default=None)

    def _is_elsewhere(self, row: Row, now_ms: int) -> bool:
        """Say whether an open run with another version of the kind has yet to try."""
        own = None if row.held is None else row.held.run_id
        tried = {digest for one, digest in self._database.misfits if one == row.id}
        tried.add(self._digest_of(row.new.kind, own or "") or "")
        return any(
            run.ended_at_ms is None
            and (self.one_host or run.lease_until_ms > now_ms)
            and run.id != own
            and (published := self._database.kinds.get((row.new.kind, run.id)))
            and published.pool == row.new.pool
            and published.schema_digest not in tried
            for run in self._database.runs.values()
        )

    def _left_to_others(self, run_id: str, now_ms: int) -> frozenset[int]:
        """Return the misfits that a run does not take now."""
        jobs, left = self._database.jobs, set()
        for (job_id, digest), (_, until_ms) in self._database.misfits.items():
            row = jobs.get(job_id)
            if (
                row is not None
                and until_ms > now_ms
                and self._digest_of(row.new.kind, run_id) == digest
            ):
                left.add(job_id)
        return frozenset(left)

    def _left(self, now_ms: int) -> set[int]:
        """Return the misfits that some run does not take now."""
        misfits = self._database.misfits.items()
        return {job_id for (job_id, _), (_, until_ms) in misfits if until_ms > now_ms}

    def _unfit(self) -> frozenset[int]:
        """Return all misfits."""
        return frozenset(job_id for job_id, _ in self._database.misfits)

    def _forget_misfits(self, ids: Iterable[int]) -> None:
        wanted = set(ids)
        for place in [one for one in self._database.misfits if one[0] in wanted]:
            self._database.put(self._database.misfits, place, None)

    def _wake_misfits(self, run_id: str, now_ms: int) -> None:
        """Make misfits runnable that a run has not tried with its version."""
        tried = set(self._database.misfits)
        for job_id in sorted(self._unfit()):
            row = self._database.jobs.get(job_id)
            if row is None or row.state is not JobState.PENDING:
                continue
            digest = self._digest_of(row.new.kind, run_id)
            if digest is not None and (job_id, digest) not in tried:
                woken = msgspec.structs.replace(
                    row, state=JobState.RUNNABLE, run_at_ms=now_ms
                )
                self._database.put_job(row, woken)

    def _prune_misfits(self) -> None:
        """Forget misfits that have been deleted or have ended."""
        ended = (self._database.jobs.get(job_id) for job_id in self._unfit())
        living = {
            row.id for row in ended if row is not None and row.finished_at_ms is None
        }
        self._forget_misfits(self._unfit() - living)
