"""Suspects, deaths of supervisors, and kinds that crash in a row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.jobs.job import UNFINISHED
from jobpool.core.rules.circuit_breaker import Saved
from jobpool.core.rules.suspects import (
    DEATHS_WITHIN_S,
    PROBATION_MAX_S,
    PROBATION_S,
    Deaths,
)
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.tables.rows import Held, Row
from jobpool.store.records.jobs import SuspectRow
from jobpool.store.records.runs import Run

_replace = msgspec.structs.replace


class SuspectKeeping:
    """The part of the store that keeps suspects, deaths and breakers."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    def note_leaving(self, run_id: str) -> None:
        """See `Store.note_leaving`."""
        with self._session.writing:
            run = self._database.runs.get(run_id)
            if run is not None and run.ended_at_ms is None:
                self._database.put(self._database.leaving, run_id, record=True)

    def note_death(
        self,
        run_id: str,
        ran: int,
        *,
        with_host: bool = False,
        living: Collection[str] = (),
    ) -> Deaths:
        """See `Store.note_death`."""
        with self._session.writing:
            deaths, now_ms = self._database.deaths, self._clock.utc_ms()
            leaving = run_id in self._database.leaving
            dead = self._database.runs.get(run_id)
            others = [] if dead is None else self._others_of_boot(dead)
            beside = sum(
                self._ran(other, dead)
                for other in others
                if dead is not None and other.id not in living
                if with_host or not _has_outlived(other, dead)
            )
            if not leaving and dead is not None and (ran or not beside):
                _, before = deaths.get(run_id) or (0, 0)
                self._database.put(deaths, run_id, (now_ms, max(before, ran)))
            since_ms = now_ms - round(DEATHS_WITHIN_S * 1000)
            of_boot = {other.id for other in others} if with_host else set()
            taken = [
                jobs
                for other, (at_ms, jobs) in deaths.items()
                if other != run_id and at_ms >= since_ms and other not in of_boot
            ]
        return Deaths(
            leaving=leaving,
            with_jobs=sum(jobs > 0 for jobs in taken),
            idle=sum(jobs == 0 for jobs in taken),
            beside=beside,
        )

    def _others_of_boot(self, run: Run) -> list[Run]:
        return [
            other
            for other in self._database.runs.values()
            if other.id != run.id and other.boot_id == run.boot_id
        ]

    def _ran(self, other: Run, dead: Run) -> int:
        """Count the attempts that another run may have been running when one died."""
        at_ms, taken = self._database.deaths.get(other.id) or (0, 0)
        held = self._database.jobs.held
        rows = [self._database.jobs[job_id] for job_id in held.get(dead.id, ())]
        lived_ms = max(
            (row.held.since_ms for row in rows if row.held is not None),
            default=0,
        )
        is_later = at_ms > max(dead.heartbeat_at_ms, lived_ms)
        return len(held.get(other.id, ())) + (taken if is_later else 0)

    def _has_probation_beside(self, run: Run, now_ms: int) -> bool:
        """Say whether another run of its host has a suspect on probation."""
        others = {other.id for other in self._others_of_boot(run)}
        rows = map(self._database.jobs.get, self._database.suspects)
        return any(
            row.held.run_id in others and _probation_until_ms(row, row.held) > now_ms
            for row in rows
            if row is not None and row.held is not None
        )

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


def _has_outlived(other: Run, dead: Run) -> bool:
    """Say whether a run renewed after half of a dead run's last lease had passed."""
    return 2 * other.heartbeat_at_ms > dead.heartbeat_at_ms + dead.lease_until_ms


def _probation_until_ms(row: Row, held: Held) -> int:
    """Return until when a leased suspect may be on probation."""
    began_ms = row.begun.started_at_ms
    if began_ms is None:
        return held.since_ms + round(PROBATION_S * 1000)
    return began_ms + round(PROBATION_MAX_S * 1000)
