"""Rows that somebody else has spoilt: found, put right or set aside, and told of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from jobpool.core.jobs.job import JobState
from jobpool.store.statements import integrity
from jobpool.store.statements.integrity import (
    JOB,
    RUN,
    Repaired,
    RowChecker,
    RowRefused,
)
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import (
    History,
    LeaseRow,
    has_payload,
    read_history,
    read_leases,
)
from jobpool.store.statements.session import Database, Row, Session
from jobpool.store.statements.validation import ID_MAX

T = TypeVar("T")
SCRUB_JOBS = 500
"""So many jobs are looked at in one step of a walk."""
TRIES = 3
"""So often a statement may be refused although no row is spoilt: another supervisor has
met the same one, and has it in hand or has put it right already."""
_NOTED_MAX = 100
_CHECKER = RowChecker(tuple(JOB))


class _Table(NamedTuple):
    """A small table, whose rows are all looked at."""

    name: str
    query: str
    columns: Mapping[str, Any]
    remedy: str
    """The statement for a row that cannot be read."""
    fate: str


_TABLES = (
    _Table("kinds", "raw_kinds", integrity.KIND, "drop_kind", "deleted"),
    _Table("breakers", "raw_breakers", integrity.BREAKER, "drop_breaker", "deleted"),
    _Table("pauses", "paused", integrity.PAUSE, "resume", "deleted"),
    _Table("misfits", "raw_misfits", integrity.MISFIT, "drop_misfit", "deleted"),
    _Table("suspects", "raw_suspects", integrity.SUSPECT, "rewrite_suspect", "mended"),
)


class Repairing:
    """The part of the store that keeps a spoilt row from stopping others."""

    _database: Database
    _noted: list[str]
    """What is to be told of, and was not yet."""
    _HOLD_JOBS: ClassVar[str | None] = None
    """The query that keeps jobs as they are until the commit, where others write."""

    def damaged_rows(self) -> Sequence[str]:
        """See `Store.damaged_rows`."""
        if not self._noted:
            return ()
        noted, self._noted = self._noted, []
        return noted

    def scrub(self, after_id: int | None) -> int | None:
        """See `Store.scrub`."""
        self._scrub_tables()  # first: whose leases are nobody's, the table of runs says
        with self._database.reading() as session:
            after = -ID_MAX - 1 if after_id is None else after_id
            step = session.rows("next_jobs", after=after, limit=SCRUB_JOBS)
            ids = [job_id for (job_id,) in step]
            rows = session.rows("raw_jobs", ids=as_json(ids)) if ids else []
            living = _living(session)
        damaged = _CHECKER.damaged(rows)
        strays = [row[0] for row in rows if _is_stray(_named(row), living)]
        suspects = {*strays, *(rows[place][0] for place in damaged)}
        if suspects:
            with self._database.writing() as session:
                self._scrub_jobs(session, suspects)
        return ids[-1] if len(ids) == SCRUB_JOBS else None

    def _scrub_jobs(self, session: Session, ids: Iterable[int]) -> None:
        now_ms = self._database.now_ms(session)
        found = self._raw(session, ids)
        living = _living(session)
        for row in found:
            if _is_stray(row, living):
                self._repair(session, row, now_ms, also=("its lease",))
            elif row["state"] != JobState.LEASED:  # else its holder ends it
                self._repair(session, row, now_ms)

    def _scrub_tables(self) -> None:
        """Put right, or delete, what cannot be read of every other table."""
        with self._database.reading() as session:
            has_damaged = any(_unreadable(session, table) for table in _TABLES) or any(
                _run_remedy(row, 0) for row in _rows_of(session, "raw_runs", RUN)
            )
        if not has_damaged:
            return
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            for table in _TABLES:
                for row in _unreadable(session, table):
                    session.run(table.remedy, now_ms=now_ms, **row)
                    self._note(f"a row of the table {table.name}", table.fate)
            for row in _rows_of(session, "raw_runs", RUN):
                if remedy := _run_remedy(row, now_ms):
                    session.run(remedy[0], **remedy[1])
                    self._note(f"run {row['id']!r}", "mended")

    def _with_repair(
        self,
        act: Callable[[], T],
        ids: Callable[[Session], Iterable[int]],
        *,
        held: bool = False,
    ) -> T:
        """Do something with jobs; what stands in the way of it is set aside first.

        Args:
            act: a method of the store, which changes nothing when it raises.
            ids: the jobs that it may be about.
            held: as for `_set_aside`.

        Raises:
            RowRefused: none of these is spoilt.
        """
        left = TRIES
        while True:
            try:
                return act()
            except RowRefused:
                with self._database.writing() as session:
                    is_found = bool(self._set_aside(session, ids(session), held=held))
                left -= not is_found
                if not left:
                    raise

    def _set_aside(
        self,
        session: Session,
        ids: Iterable[int],
        *,
        also: Sequence[str] = (),
        held: bool = False,
    ) -> dict[int, Repaired]:
        """Put rows of jobs right, and set aside those that may not go on.

        Args:
            session: in a transaction.
            ids: of the jobs.
            also: what else cannot be read of each of them.
            held: those that are leased are settled next: they stay so.

        Returns:
            Those that were not as they should be.
        """
        now_ms = self._database.now_ms(session)
        repaired = {
            row["id"]: self._repair(session, row, now_ms, also=also, held=held)
            for row in self._raw(session, ids)
        }
        return {job_id: one for job_id, one in repaired.items() if one.wrong}

    def _set_aside_unreadable(
        self, session: Session, unreadable: Iterable[Row]
    ) -> None:
        """Set jobs aside whose leases cannot be made."""
        for row in unreadable:
            also = () if has_payload(row) else ("payload",)
            self._set_aside(session, [row[0]], also=also)

    def _readable_leases(self, session: Session, run_id: str) -> list[LeaseRow]:
        """Return what a run holds; set aside what cannot be read of it."""
        found = session.rows("leases_of", run_id=run_id)
        rows, unreadable = read_leases(found)
        whole = [r for r in rows if r.token is not None and r.leased_at_ms is not None]
        self._set_aside_unreadable(session, unreadable)
        if len(whole) < len(rows):
            kept = {row.id for row in whole}
            self._set_aside(session, [row.id for row in rows if row.id not in kept])
        return whole

    def _readable_history(
        self, session: Session, rows: Sequence[LeaseRow]
    ) -> tuple[History, frozenset[int]]:
        """Return the past attempts by job; set aside the jobs where it cannot be read.

        Returns:
            With it, those jobs.
        """
        history, damaged = read_history(session, rows)
        if damaged:
            self._set_aside(session, damaged, also=("its history",))
        return history, damaged

    def _raw(self, session: Session, ids: Iterable[int]) -> list[dict[str, Any]]:
        wanted = as_json(ids)
        if self._HOLD_JOBS:
            wanted = as_json(i for (i,) in session.rows(self._HOLD_JOBS, ids=wanted))
        return [_named(row) for row in session.rows("raw_jobs", ids=wanted)]

    def _repair(
        self,
        session: Session,
        row: Mapping[str, Any],
        now_ms: int,
        *,
        also: Sequence[str] = (),
        held: bool = False,
    ) -> Repaired:
        repaired = integrity.repair_job(row, now_ms, also=also, held=held)
        if repaired.wrong:
            session.run("rewrite_job", **repaired.fields)
            fate = "set aside" if repaired.is_set_aside else "mended"
            self._note(f"job {row['id']}", fate, repaired.wrong)
        return repaired

    def _note(self, what: str, fate: str, wrong: Sequence[str] = ()) -> None:
        """Have it told of; a flood of them is cut."""
        columns = f" ({', '.join(wrong)})" if wrong else ""
        if len(self._noted) < _NOTED_MAX:
            self._noted.append(
                f"{what} could not be read{columns} and was {fate}: somebody else has "
                "written in the database"
            )


def _named(row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(JOB, row, strict=True))


def _is_stray(row: Mapping[str, Any], living: frozenset[str]) -> bool:
    """Say whether a job is leased, and by nobody who could ever end that."""
    return row["state"] == JobState.LEASED and row["supervisor"] not in living


def _living(session: Session) -> frozenset[Any]:
    """Return the runs that have not ended."""
    return frozenset(
        row["id"]
        for row in _rows_of(session, "raw_runs", RUN)
        if row["ended_at_ms"] is None
    )


def _rows_of(
    session: Session, query: str, columns: Mapping[str, Any]
) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in session.rows(query)]


def _unreadable(session: Session, table: _Table) -> list[dict[str, Any]]:
    return [
        row
        for row in _rows_of(session, table.query, table.columns)
        if not integrity.is_valid(row, table.columns)
    ]


def _run_remedy(
    row: Mapping[str, Any], now_ms: int
) -> tuple[str, Mapping[str, Any]] | None:
    """Return the statement for a run that cannot be read; None: it can."""
    if not integrity.is_valid({"id": row["id"]}, RUN):
        return "drop_run", row
    fields, is_sound = integrity.repair_run(row, now_ms)
    return None if is_sound else ("rewrite_run", fields)
