"""Damaged rows, written by other programs: found, repaired or set aside, reported."""

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
"""How many jobs one call of `scrub` checks."""
TRIES = 3
"""How often a statement may be refused although no row is damaged: another supervisor
has met the same row, and is repairing or has repaired it."""
_NOTED_MAX = 100
_CHECKER = RowChecker(tuple(JOB))


class _Table(NamedTuple):
    """A small table, whose rows are all checked."""

    name: str
    query: str
    columns: Mapping[str, Any]
    remedy: str
    """The statement for a row that cannot be read."""
    fate: str


_TABLES = (
    _Table("kinds", "raw_kinds", integrity.KIND, "drop_kind", "deleted"),
    _Table("breakers", "raw_breakers", integrity.BREAKER, "drop_breaker", "deleted"),
    _Table("pauses", "raw_pauses", integrity.PAUSE, "drop_pause", "deleted"),
    _Table("quotas", "raw_quotas", integrity.QUOTA, "drop_quota", "deleted"),
    _Table("tenants", "raw_tenants", integrity.TENANT, "drop_tenant", "deleted"),
    _Table(
        "debounced", "raw_debounced", integrity.DEBOUNCED, "drop_debounced", "deleted"
    ),
    _Table("misfits", "raw_misfits", integrity.MISFIT, "drop_misfit", "deleted"),
    _Table(
        "suspects", "raw_suspects", integrity.SUSPECT, "rewrite_suspect", "repaired"
    ),
)


class Repairing:
    """The part of the store that keeps a damaged row from stopping other jobs."""

    _database: Database
    _noted: list[str]
    """What has not been reported yet."""
    _HOLD_JOBS: ClassVar[str | None] = None
    """The query that locks jobs until the commit, where there are other writers."""

    def damaged_rows(self) -> Sequence[str]:
        """See `Store.damaged_rows`."""
        if not self._noted:
            return ()
        noted, self._noted = self._noted, []
        return noted

    def scrub(self, after_id: int | None) -> int | None:
        """See `Store.scrub`."""
        self._scrub_tables()  # first: a lease is stray if the table of runs says so
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
            elif row["state"] != JobState.LEASED:  # else its supervisor ends it
                self._repair(session, row, now_ms)

    def _scrub_tables(self) -> None:
        """Repair or delete the unreadable rows of every other table."""
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
                    self._note(f"run {row['id']!r}", "repaired")

    def _with_repair(
        self,
        act: Callable[[], T],
        ids: Callable[[Session], Iterable[int]],
        *,
        held: bool = False,
    ) -> T:
        """Call a method; if a damaged row makes it fail, repair that and call again.

        Args:
            act: a method of the store, which changes nothing when it raises.
            ids: the jobs that it may be about.
            held: as for `_set_aside`.

        Raises:
            RowRefused: none of these rows is damaged.
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
        """Repair rows of jobs, and set aside those that cannot continue.

        Args:
            session: in a transaction.
            ids: of the jobs.
            also: what else of each job cannot be read.
            held: leased jobs stay leased, since they are settled next.

        Returns:
            The rows that were damaged, by id.
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
        """Set aside the jobs of rows that cannot be read as leases."""
        for row in unreadable:
            also = () if has_payload(row) else ("payload",)
            self._set_aside(session, [row[0]], also=also)

    def _readable_leases(self, session: Session, run_id: str) -> list[LeaseRow]:
        """Return what a run holds; set aside the jobs that cannot be read."""
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
        """Return the past attempts by job; set aside jobs whose past cannot be read.

        Returns:
            The history, and the jobs that were set aside.
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
            fate = "set aside" if repaired.is_set_aside else "repaired"
            self._note(f"job {row['id']}", fate, repaired.wrong)
        return repaired

    def _note(self, what: str, fate: str, wrong: Sequence[str] = ()) -> None:
        """Remember a damaged row for `damaged_rows`; only so many."""
        columns = f" ({', '.join(wrong)})" if wrong else ""
        if len(self._noted) < _NOTED_MAX:
            self._noted.append(
                f"{what} could not be read{columns} and was {fate}: another program "
                "has written to the database"
            )


def _named(row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(JOB, row, strict=True))


def _is_stray(row: Mapping[str, Any], living: frozenset[str]) -> bool:
    """Say whether a job is leased by a run that does not exist or has ended."""
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
    """Return the statement that repairs a run's row; None: it is readable."""
    if not integrity.is_valid({"id": row["id"]}, RUN):
        return "drop_run", row
    fields, is_sound = integrity.repair_run(row, now_ms)
    return None if is_sound else ("rewrite_run", fields)
