"""Suspects, deaths of supervisors, and kinds that crash in a row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from jobpool.core.rules.circuit_breaker import OPEN_LAST_S, BreakerState, Saved
from jobpool.core.rules.suspects import DEATHS_WITHIN_S, Deaths
from jobpool.store.records import MisfitRow, SuspectRow
from jobpool.store.statements.integrity import BREAKER, is_valid
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import records
from jobpool.store.statements.session import Database


class SuspectKeeping:
    """The part of the store that keeps suspects, deaths and breakers."""

    _database: Database

    def note_leaving(self, run_id: str) -> None:
        """See `Store.note_leaving`."""
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            session.run("note_leaving", run_id=run_id, now_ms=now_ms)

    def note_death(
        self,
        run_id: str,
        ran: int,
        *,
        with_host: bool = False,
        living: Collection[str] = (),
    ) -> Deaths:
        """See `Store.note_death`."""
        with self._database.writing() as session:
            leaving = bool(session.value("is_leaving", run_id=run_id))
            now_ms = self._database.now_ms(session)
            beside = session.value(
                "ran_beside",
                run_id=run_id,
                living=as_json(sorted(living)),
                with_host=int(with_host),
            )
            if not leaving and (ran or not beside):
                session.run("note_death", run_id=run_id, ran=ran, now_ms=now_ms)
            since_ms = now_ms - round(DEATHS_WITHIN_S * 1000)
            ((with_jobs, idle),) = session.rows(
                "other_deaths",
                run_id=run_id,
                since_ms=since_ms,
                with_host=int(with_host),
            )
        return Deaths(leaving=leaving, with_jobs=with_jobs, idle=idle, beside=beside)

    def clear(self, leases: Sequence[tuple[int, int]]) -> None:
        """See `Store.clear`."""
        with self._database.writing() as session:
            session.run("clear_leases", rows=as_json(leases))

    def suspects(self) -> list[SuspectRow]:
        """See `Store.suspects`."""
        with self._database.reading() as session:
            return records(SuspectRow, session.rows("suspects"))

    def misfits(self) -> list[MisfitRow]:
        """See `Store.misfits`."""
        with self._database.reading() as session:
            return records(MisfitRow, session.rows("misfits"))

    def save_breakers(self, saved: Iterable[Saved]) -> None:
        """See `Store.save_breakers`."""
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            for one in saved:
                if not one.crashes:
                    session.run("drop_breaker", kind=one.kind)
                    continue
                session.run(
                    "save_breaker",
                    kind=one.kind,
                    state=one.state,
                    crashes=one.crashes,
                    last_job=one.last_job,
                    wait_ms=round(one.wait_s * 1000),
                    now_ms=now_ms,
                )

    def breakers(self) -> list[Saved]:
        """See `Store.breakers`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            rows = session.rows("raw_breakers")
        named = [dict(zip(BREAKER, row, strict=True)) for row in rows]
        return [
            Saved(
                kind=one["kind"],
                state=BreakerState(one["state"]),
                crashes=one["crashes"],
                last_job=one["last_job"],
                wait_s=min(max(0.0, (one["next_at_ms"] - now_ms) / 1000), OPEN_LAST_S),
            )
            for one in named
            if is_valid(one, BREAKER)
        ]
