"""Suspects, deaths of supervisors, and kinds that crash in a row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import msgspec

from jobpool.core.jobs.job import Lease
from jobpool.core.rules.circuit_breaker import OPEN_LAST_S, BreakerState, Saved
from jobpool.core.rules.suspects import (
    DEATHS_WITHIN_S,
    PROBATION_MAX_S,
    PROBATION_S,
    Deaths,
)
from jobpool.store.operations.quotas.claim import Claim
from jobpool.store.operations.quotas.leasing import Kinds, LanedLeasing
from jobpool.store.operations.repair import Repairing
from jobpool.store.records.jobs import MisfitRow, SuspectRow
from jobpool.store.statements.integrity import BREAKER, is_valid
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import LeaseRow, read_leases, records
from jobpool.store.statements.session import Database, Session


class Wish(NamedTuple):
    """The arguments of `Store.lease`."""

    run_id: str
    wanted: Mapping[str, int]
    kinds: Kinds
    ahead: Mapping[str, int]
    suspects: bool
    alone: bool
    slow_s: float = 0.0


class SuspectChoice(NamedTuple):
    """The suspect to lease now, and whether others wait."""

    rows: Sequence[LeaseRow]
    """At most one; nearly always none."""
    others_wait: bool
    is_closed: bool = False
    """Nothing may be leased, because of suspects."""

    def left(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Return how many leases are wanted besides."""
        return {
            pool: limit - sum(row.pool == pool for row in self.rows)
            for pool, limit in wanted.items()
        }

    def marked(self, leases: tuple[Lease, ...]) -> tuple[Lease, ...]:
        """Return leases, with that of the suspect marked."""
        chosen = {row.id for row in self.rows}
        if not chosen:
            return leases
        return tuple(
            msgspec.structs.replace(one, suspect=True) if one.id in chosen else one
            for one in leases
        )


NO_SUSPECT = SuspectChoice((), others_wait=False)


class SuspectChoosing(LanedLeasing, Repairing):
    """The part of the store that leases suspects, one at a time."""

    _LOCK_SUSPECTS: ClassVar[str | None] = None
    """The query that locks the choice among suspects, where there are other writers."""

    def _next_suspect(
        self,
        session: Session,
        wish: Wish,
        laned: Kinds,
        claim: Claim | None,
        now_ms: int,
    ) -> SuspectChoice:
        """Choose the next suspect, unless one is leased anywhere; take its permits."""
        known = as_json(
            (pool, kind)
            for pool, limit in wish.wanted.items()
            for kind in (wish.kinds.get(pool, ()) if limit > 0 else ())
        )
        held = self._held_suspects(session, claim, laned)
        is_ours = not self._LOCK_SUSPECTS or bool(session.rows(self._LOCK_SUSPECTS))
        given = {
            "kinds": known,
            "held": as_json(held.held),
            "run_id": wish.run_id,
            "now_ms": now_ms,
        }
        ((due, leased),) = session.rows("suspects_due", **given)
        choice = SuspectChoice((), others_wait=bool(due))
        if wish.suspects and is_ours and not leased and due:
            rows, unreadable = read_leases(session.rows("suspect_candidate", **given))
            self._set_aside_unreadable(session, unreadable)
            choice = SuspectChoice(rows, others_wait=due > len(rows))
        is_closed = choice.others_wait and not wish.suspects
        if is_closed or _has_probation_beside(session, wish.run_id, now_ms):
            return choice._replace(is_closed=True)
        for row in choice.rows:
            if claim is not None and row.id in held.allowed:
                claim.take(row.id, *held.allowed[row.id])
        return choice


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


def _has_probation_beside(session: Session, run_id: str, now_ms: int) -> bool:
    """Say whether another run on a run's host has a suspect on probation."""
    return bool(
        session.value(
            "has_probation_beside",
            run_id=run_id,
            now_ms=now_ms,
            begins_ms=round(PROBATION_S * 1000),
            longest_ms=round(PROBATION_MAX_S * 1000),
        )
    )
