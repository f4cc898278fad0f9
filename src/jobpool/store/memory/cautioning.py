"""Suspects, deaths of supervisors, and kinds that crash in a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from jobpool.core.breaker import Saved
from jobpool.core.clock import Clock
from jobpool.core.job import UNFINISHED
from jobpool.core.suspicion import DEATHS_WITHIN_S, Deaths
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.session import Session
from jobpool.store.records import SuspectRow

_replace = msgspec.structs.replace


class Cautioning:
    """The part of the store that remembers what may be dangerous."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    def note_leaving(self, run_id: str) -> None:
        """See `Store.note_leaving`."""
        with self._session.writing:
            run = self._database.runs.get(run_id)
            if run is not None and run.ended_at_ms is None:
                self._database.put(self._database.leaving, run_id, record=True)

    def note_death(self, run_id: str, ran: int, *, with_host: bool = False) -> Deaths:
        """See `Store.note_death`."""
        with self._session.writing:
            deaths, now_ms = self._database.deaths, self._clock.utc_ms()
            leaving = run_id in self._database.leaving
            if not leaving and run_id in self._database.runs:
                _, before = deaths.get(run_id) or (0, 0)
                self._database.put(deaths, run_id, (now_ms, max(before, ran)))
            since_ms = now_ms - round(DEATHS_WITHIN_S * 1000)
            others = [
                taken
                for other, (at_ms, taken) in deaths.items()
                if other != run_id and at_ms >= since_ms
                if not (with_host and self._are_of_one_boot(run_id, other))
            ]
        return Deaths(
            leaving=leaving,
            with_jobs=sum(taken > 0 for taken in others),
            idle=sum(taken == 0 for taken in others),
        )

    def _are_of_one_boot(self, run_id: str, other_id: str) -> bool:
        one, other = (self._database.runs.get(each) for each in (run_id, other_id))
        return one is not None and other is not None and one.boot_id == other.boot_id

    def clear(self, leases: Sequence[tuple[int, int]]) -> None:
        """See `Store.clear`."""
        with self._session.writing:
            for job_id, token in leases:
                row = self._database.jobs.get(job_id)
                if row is not None and row.held and row.held.token == token:
                    self._suspect(job_id, suspect=False)

    def suspects(self) -> list[SuspectRow]:
        """See `Store.suspects`."""
        with self._session.reading:
            jobs, table = self._database.jobs, self._database.suspects
            found = ((jobs.get(job_id), since_ms) for job_id, since_ms in table.items())
            return sorted(
                SuspectRow(
                    id=row.id,
                    kind=row.new.kind,
                    pool=row.new.pool,
                    state=row.state,
                    since_ms=since_ms,
                )
                for row, since_ms in found
                if row is not None and row.state in UNFINISHED
            )

    def save_breakers(self, saved: Iterable[Saved]) -> None:
        """See `Store.save_breakers`."""
        with self._session.writing:
            table, now_ms = self._database.breakers, self._clock.utc_ms()
            for one in saved:
                due_ms = now_ms + round(one.wait_s * 1000)
                record = (one, due_ms) if one.crashes else None
                if record is not None or one.kind in table:
                    self._database.put(table, one.kind, record)

    def breakers(self) -> list[Saved]:
        """See `Store.breakers`."""
        with self._session.reading:
            now_ms = self._clock.utc_ms()
            return [
                _replace(saved, wait_s=max(0, due_ms - now_ms) / 1000)
                for _, (saved, due_ms) in sorted(self._database.breakers.items())
            ]

    def _suspect(self, job_id: int, *, suspect: bool) -> None:
        """Make a job a suspect, or clear it, within a transaction."""
        table = self._database.suspects
        if suspect != (job_id in table):
            since_ms = self._clock.utc_ms() if suspect else None
            self._database.put(table, job_id, since_ms)
