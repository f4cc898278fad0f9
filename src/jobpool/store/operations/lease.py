"""Leasing: due jobs of known kinds are granted under fresh tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import msgspec

from jobpool.core.jobs.job import Lease
from jobpool.core.rules.suspects import PROBATION_MAX_S, PROBATION_S
from jobpool.errors import JobpoolBug, StoreRefused
from jobpool.store.operations.misfits import misfits_among, with_misfits
from jobpool.store.operations.repair import Repairing
from jobpool.store.operations.runs import known
from jobpool.store.operations.schedules.ticks import with_ticks
from jobpool.store.records import LeaseBatch
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import LeaseRow, make_lease, read_leases
from jobpool.store.statements.session import Database, Row, Session
from jobpool.store.statements.validation import COUNT_MAX

STEP_JOBS = 1000
"""The most jobs that one call expires, and the most that it promotes."""
KINDS_MAX = 1000
"""So many pairs of pool and kind are found at once."""


class _SuspectChoice(NamedTuple):
    """The suspect to lease now, and whether others wait."""

    rows: list[LeaseRow]
    """At most one; nearly always none."""
    others_wait: bool


_NO_SUSPECT = _SuspectChoice([], others_wait=False)


class Leasing(Repairing, ABC):
    """The part of the store that grants leases."""

    _database: Database
    _LOCK_RUN: ClassVar[str | None]
    _LOCK_SUSPECTS: ClassVar[str | None] = None
    """The query that locks the choice among suspects, where there are other writers."""

    @abstractmethod
    def _lease_jobs(
        self, session: Session, run_id: str, ids: Sequence[int], now_ms: int
    ) -> list[int]:
        """Lease chosen jobs under fresh tokens, which only increase.

        Returns:
            The tokens in order; fewer than jobs if some were no longer runnable.

        Raises:
            StoreRefused: the source of tokens is damaged; nothing was leased.
        """

    def lease(
        self,
        run_id: str,
        wanted: Mapping[str, int],
        kinds: Mapping[str, Sequence[str]],
        *,
        suspects: bool = True,
        alone: bool = False,
        ahead: Mapping[str, int] | None = None,
    ) -> LeaseBatch:
        """See `Store.lease`."""
        del ahead
        return self._with_repair(
            lambda: self._lease(run_id, wanted, kinds, suspects=suspects, alone=alone),
            lambda session: self._reachable(session, wanted, kinds),
        )

    def _lease(
        self,
        run_id: str,
        wanted: Mapping[str, int],
        kinds: Mapping[str, Sequence[str]],
        *,
        suspects: bool,
        alone: bool,
    ) -> LeaseBatch:
        asked = [pool for pool, most in wanted.items() if most > 0 and kinds.get(pool)]
        with self._database.writing() as session:
            by = {"run_id": run_id, "now_ms": self._database.known_ms(session)}
            # In one round trip: these candidates are nearly always leased as they are.
            status, *found = session.ask(
                ("lease_status", by),
                *(_query(by, pool, kinds[pool], wanted[pool]) for pool in asked),
            )
            now_ms = self._database.now_ms(session)
            (
                ended,
                has_expired,
                due_ms,
                has_suspects,
                has_misfits,
                lapsed,
                outdated,
                is_paused,
            ) = known(session, run_id, status)
            if ended:
                raise StoreRefused(
                    f"run {run_id} has ended in the store {session.place} and gets no "
                    "leases; restart jobpool"
                )
            if outdated or lapsed or is_paused:
                return LeaseBatch(outdated=bool(outdated), lapsed=bool(lapsed))
            due_ms, has_moved = _bring_due(
                session, _due_ms(due_ms), now_ms, has_expired=has_expired
            )
            turn = _NO_SUSPECT
            if has_suspects:
                may = suspects
                turn = self._next_suspect(
                    session, run_id, now_ms, wanted, kinds, may=may
                )
                is_closed = turn.others_wait and not may
                if is_closed or _has_probation_beside(session, run_id, now_ms):
                    return LeaseBatch(
                        next_due_in_s=_in_s(due_ms, now_ms), suspects_wait=True
                    )
                if turn.rows and alone:
                    asked = []
                wanted = {
                    pool: limit - sum(row.pool == pool for row in turn.rows)
                    for pool, limit in wanted.items()
                }
            if has_moved or turn.rows:
                queries = [
                    _query(by, pool, kinds[pool], wanted[pool]) for pool in asked
                ]
                found = session.ask(*queries) if queries else []
            candidates, is_short = self._candidates(
                session, dict(zip(asked, found, strict=True)), wanted, kinds, now_ms
            )
            # The suspect gets the highest token, since it begins after the others;
            # `suspect_candidate` orders by it.
            leases = self._grant(session, run_id, [*candidates, *turn.rows], now_ms)
            if has_misfits:
                leases = with_misfits(session, leases)
            if is_short:
                due_ms = now_ms
        chosen = {row.id for row in turn.rows}
        return LeaseBatch(
            leases=tuple(
                msgspec.structs.replace(one, suspect=True) if one.id in chosen else one
                for one in leases
            )
            if chosen
            else leases,
            next_due_in_s=_in_s(due_ms, now_ms),
            suspects_wait=turn.others_wait,
        )

    def _next_suspect(
        self,
        session: Session,
        run_id: str,
        now_ms: int,
        wanted: Mapping[str, int],
        kinds: Mapping[str, Sequence[str]],
        *,
        may: bool,
    ) -> _SuspectChoice:
        """Choose the next suspect, unless one is leased anywhere."""
        known = as_json(
            (pool, kind)
            for pool, limit in wanted.items()
            for kind in (kinds.get(pool, ()) if limit > 0 else ())
        )
        is_ours = not self._LOCK_SUSPECTS or bool(session.rows(self._LOCK_SUSPECTS))
        given = {"kinds": known, "run_id": run_id, "now_ms": now_ms}
        ((due, leased),) = session.rows("suspects_due", **given)
        if not may or not is_ours or leased or not due:
            return _SuspectChoice([], others_wait=bool(due))
        rows, unreadable = read_leases(session.rows("suspect_candidate", **given))
        self._set_aside_unreadable(session, unreadable)
        return _SuspectChoice(rows, others_wait=due > len(rows))

    def leases_of(self, run_id: str) -> list[Lease]:
        """See `Store.leases_of`."""
        with self._database.writing() as session:
            if self._LOCK_RUN:
                session.rows(self._LOCK_RUN, run_id=run_id)
            rows = self._readable_leases(session, run_id)
            history, damaged = self._readable_history(session, rows)
            suspects = {
                job_id for (job_id,) in session.rows("suspects_of", run_id=run_id)
            }
            unfit = misfits_among(session, [row.id for row in rows])
        return [
            make_lease(
                row,
                token=row.token,
                attempt=row.attempt,
                leased_at_ms=row.leased_at_ms,
                history=history.get(row.id, ()),
                suspect=row.id in suspects,
                unfit=row.id in unfit,
            )
            for row in rows
            if row.id not in damaged
            and row.token is not None
            and row.leased_at_ms is not None
        ]

    def due(self, kinds: Mapping[str, Sequence[str]], limit: int) -> dict[str, int]:
        """See `Store.due`."""
        counts: dict[str, int] = {}
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            for pool, names in kinds.items():
                known = as_json(set(names))
                count: int = session.value(
                    "count_runnable",
                    pool=pool,
                    kinds=known,
                    limit=limit,
                    now_ms=now_ms,
                )
                if count < limit:
                    count += session.value(
                        "count_due",
                        pool=pool,
                        kinds=known,
                        now_ms=now_ms,
                        promoted=STEP_JOBS,
                    )
                counts[pool] = min(count, limit)
        return counts

    def runnable_kinds(self, pools: Collection[str]) -> list[tuple[str, str]]:
        """See `Store.runnable_kinds`."""
        with self._database.reading() as session:
            rows = session.rows(
                "runnable_kinds", pools=as_json(sorted(pools)), limit=KINDS_MAX
            )
        return [(pool, kind) for pool, kind in rows]

    def _candidates(
        self,
        session: Session,
        found: Mapping[str, Sequence[Row]],
        wanted: Mapping[str, int],
        kinds: Mapping[str, Sequence[str]],
        now_ms: int,
    ) -> tuple[list[LeaseRow], bool]:
        """Take out the jobs that have expired or cannot be read.

        Returns:
            The rows to lease, and whether any were taken out, or are held by others,
            so that another call would find more.
        """
        chosen: list[LeaseRow] = []
        is_short = False
        for pool, best in found.items():
            if len(best) > wanted[pool]:
                raise JobpoolBug(
                    f"a query for {wanted[pool]} jobs returned {len(best)}; please "
                    "report this"
                )
            rows, unreadable = read_leases(best)
            self._set_aside_unreadable(session, unreadable)
            late = {
                row.id
                for row in rows
                if row.expires_at_ms is not None
                and row.expires_at_ms <= now_ms
                and not row.attempt
            }
            _expire(session, late, now_ms)
            chosen += [row for row in rows if row.id not in late] if late else rows
            is_short = (
                is_short
                or bool(unreadable or late)
                or (
                    not best
                    and wanted[pool] > 0
                    and _others_hold(session, pool, kinds, now_ms)
                )
            )
        return chosen, is_short

    def _reachable(
        self,
        session: Session,
        wanted: Mapping[str, int],
        kinds: Mapping[str, Sequence[str]],
    ) -> set[int]:
        """Return the ids of all jobs that a lease may change."""
        now_ms = self._database.now_ms(session)
        step = {"now_ms": now_ms, "limit": STEP_JOBS}
        reached = [
            *session.rows("expired_jobs", **step),
            *session.rows("due_jobs", **step),
        ]
        no_run = {"run_id": "", "now_ms": now_ms}
        for pool in wanted:
            name, given = _query(no_run, pool, kinds.get(pool, ()), STEP_JOBS)
            reached += session.rows(name, **given)
        known = as_json((pool, kind) for pool in wanted for kind in kinds.get(pool, ()))
        reached += session.rows("suspect_candidate", kinds=known, **no_run)
        return {job_id for job_id, *_ in reached}

    def _grant(
        self, session: Session, run_id: str, rows: Sequence[LeaseRow], now_ms: int
    ) -> tuple[Lease, ...]:
        history, damaged = self._readable_history(session, rows)
        if damaged:
            rows = [row for row in rows if row.id not in damaged]
        if not rows:
            return ()
        tokens = self._lease_jobs(session, run_id, [row.id for row in rows], now_ms)
        if len(tokens) != len(rows):
            raise JobpoolBug(
                f"{len(tokens)} of {len(rows)} chosen jobs could be leased; please "
                "report this"
            )
        leases = tuple(
            make_lease(
                row,
                token=token,
                attempt=min(row.attempt + 1, COUNT_MAX),
                leased_at_ms=now_ms,
                history=history.get(row.id, ()),
            )
            for row, token in zip(rows, tokens, strict=True)
        )
        return with_ticks(session, rows, leases)


def _bring_due(
    session: Session, due_ms: int | None, now_ms: int, *, has_expired: bool
) -> tuple[int | None, bool]:
    """Cancel expired jobs, and make due ones runnable.

    Returns:
        When the next pending job falls due, and whether anything was done.
    """
    has_due = due_ms is not None and due_ms <= now_ms
    if has_expired:
        expired = session.rows("expired_jobs", now_ms=now_ms, limit=STEP_JOBS)
        _expire(session, [job_id for (job_id,) in expired], now_ms)
    if has_due:
        session.run("promote_due", now_ms=now_ms, limit=STEP_JOBS)
    if not has_expired and not has_due:
        return due_ms, False
    return _due_ms(session.value("next_due")), True


def _in_s(due_ms: int | None, now_ms: int) -> float | None:
    """Return the seconds until a moment, or None without one."""
    return None if due_ms is None else max(0.0, (due_ms - now_ms) / 1000)


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


def _due_ms(value: object) -> int | None:
    """Return when a job falls due; a value that is not a number never does."""
    return round(value) if isinstance(value, (int, float)) else None


def _query(
    by: Mapping[str, object], pool: str, kinds: Sequence[str], limit: int
) -> tuple[str, Mapping[str, object]]:
    """Return the query for the best jobs of a pool."""
    names = as_json(set(kinds))
    return "lease_candidates", {**by, "pool": pool, "kinds": names, "limit": limit}


def _others_hold(
    session: Session, pool: str, kinds: Mapping[str, Sequence[str]], now_ms: int
) -> bool:
    """Say whether other transactions hold the runnable jobs of a pool.

    Called when none was found. The others may roll back, and a supervisor that was
    reported "nothing due" would not ask again soon; one that got a job does.
    """
    known = as_json(set(kinds[pool]))
    return bool(
        session.value("count_runnable", pool=pool, kinds=known, limit=1, now_ms=now_ms)
    )


def _expire(session: Session, ids: Iterable[int], now_ms: int) -> None:
    if ids:
        session.run("expire_jobs", ids=as_json(ids), now_ms=now_ms)
