"""Leasing: due jobs of known kinds are granted under fresh tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from jobpool.core.jobs.job import Lease
from jobpool.errors import JobpoolBug, StoreRefused
from jobpool.store.operations.due import (
    STEP_JOBS,
    asked,
    bring_due,
    due_from,
    earlier,
    expire,
    further,
    in_s,
    others_hold,
    queries,
    query,
)
from jobpool.store.operations.flows.fold import fold
from jobpool.store.operations.flows.rows import Contested
from jobpool.store.operations.quotas.claim import Asked, Claim
from jobpool.store.operations.quotas.leasing import Split
from jobpool.store.operations.quotas.view import held_in_lanes
from jobpool.store.operations.runs import known
from jobpool.store.operations.schedules.ticks import with_ticks
from jobpool.store.operations.set_apart.misfits import misfits_among, with_misfits
from jobpool.store.operations.set_apart.suspects import (
    NO_SUSPECT,
    SuspectChoosing,
    Wish,
)
from jobpool.store.records.flows import Folded
from jobpool.store.records.jobs import HeldBack, LeaseBatch
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import LeaseRow, make_lease, read_leases
from jobpool.store.statements.session import Database, OwnSession, Row, Session
from jobpool.store.statements.validation import COUNT_MAX

KINDS_MAX = 1000
"""So many pairs of pool and kind are found at once."""


class _Facts(NamedTuple):
    """The columns of lease_status."""

    has_ended: Any
    has_expired: Any
    due_ms: Any
    has_suspects: Any
    has_misfits: Any
    has_lapsed: Any
    is_outdated: Any
    is_paused: Any
    limits_version: Any
    has_flow_notes: Any

    def refusal(self, session: Session, run_id: str) -> LeaseBatch | None:
        """Return the answer to a run that gets no leases now; None: it may.

        Raises:
            StoreRefused: it has ended.
        """
        if self.has_ended:
            raise StoreRefused(
                f"run {run_id} has ended in the store {session.place} and gets no "
                "leases; restart jobpool"
            )
        if not (self.is_outdated or self.has_lapsed or self.is_paused):
            return None
        return LeaseBatch(outdated=bool(self.is_outdated), lapsed=bool(self.has_lapsed))


class Leasing(SuspectChoosing, ABC):
    """The part of the store that grants leases."""

    _database: Database
    _LOCK_RUN: ClassVar[str | None]
    _CONTESTED: ClassVar[Contested | None]

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
        slow_s: float = 0.0,
    ) -> LeaseBatch:
        """See `Store.lease`."""
        wish = Wish(run_id, wanted, kinds, ahead or {}, suspects, alone, slow_s)
        return self._with_repair(
            lambda: self._lease(wish),
            lambda session: self._reachable(session, wanted, kinds),
        )

    def _lease(self, wish: Wish) -> LeaseBatch:
        wanted, split = wish.wanted, self._split(wish.wanted, wish.kinds)
        with self._database.writing() as session:
            by = {"run_id": wish.run_id, "now_ms": self._database.known_ms(session)}
            # In one round trip: these candidates are nearly always leased as they are.
            status, *found = session.ask(
                ("lease_status", by), *queries(by, split.plain, wanted)
            )
            now_ms = self._database.now_ms(session)
            facts = _Facts(*known(session, wish.run_id, status))
            if (nothing := facts.refusal(session, wish.run_id)) is not None:
                return nothing
            due_ms, has_moved = bring_due(
                session,
                due_from(facts.due_ms),
                now_ms,
                has_expired=facts.has_expired,
            )
            folded = self._folded(session, facts, now_ms)
            if folded.opened or folded.canceled:
                due_ms, has_moved = due_from(session.value("next_due")), True
            if self._refresh(session, facts.limits_version, now_ms, wish.run_id):
                split, has_moved = self._split(wanted, wish.kinds), True
            claimer = wish.run_id, now_ms
            claim = self._claim(session, claimer, split.laned, slow_s=wish.slow_s)
            turn = (
                self._next_suspect(session, wish, split.laned, claim, now_ms)
                if facts.has_suspects
                else NO_SUSPECT
            )
            if turn.is_closed:
                return LeaseBatch(
                    next_due_in_s=in_s(due_ms, now_ms),
                    suspects_wait=True,
                    opened=folded.opened,
                )
            if turn.rows:
                wanted, has_moved = turn.left(wanted), True
                split = split.nothing_if(alone=wish.alone)
            if has_moved:
                found = asked(session, queries(by, split.plain, wanted))
            best = dict(zip(split.plain, found, strict=True))
            plain, is_short = self._candidates(session, best, wanted, split, claimer)
            if claim is not None and split.laned:
                is_short |= self._fill(session, claim, wish, wanted, plain)
            candidates = [row for rows in plain.values() for row in rows]
            # The suspect gets the highest token, since it begins after the others;
            # `suspect_candidate` orders by it.
            leases = self._grant(
                session, wish.run_id, [*candidates, *turn.rows], now_ms
            )
            if facts.has_misfits:
                leases = with_misfits(session, leases)
            if claim is not None:
                leases = claim.finish(leases)
                is_short |= claim.is_short
                due_ms = earlier(due_ms, claim.opens_at_ms)
        due_ms = now_ms if is_short or folded.is_short else due_ms
        return LeaseBatch(
            leases=turn.marked(leases),
            next_due_in_s=in_s(due_ms, now_ms),
            suspects_wait=turn.others_wait,
            opened=folded.opened,
        )

    def _folded(self, session: OwnSession, facts: _Facts, now_ms: int) -> Folded:
        """Fold flows, if something may be noted: also an expiry of just now."""
        if not (facts.has_flow_notes or facts.has_expired):
            return Folded()
        return fold(session, now_ms, self._CONTESTED, self._note)

    def _fill(
        self,
        session: Session,
        claim: Claim,
        wish: Wish,
        wanted: Mapping[str, int],
        chosen: dict[str, list[LeaseRow]],
    ) -> bool:
        """Add jobs of lanes to what was chosen; say whether any were taken out."""
        is_short = False

        def read(rows: Sequence[Row]) -> list[LeaseRow]:
            nonlocal is_short
            readable, has_others = self._leasable(session, rows, claim.now_ms)
            is_short |= has_others
            return readable

        claim.prepare(wanted)
        for pool in claim.kinds:
            asked = Asked(pool, wanted[pool], wish.ahead.get(pool, 0))
            chosen[pool] = claim.fill(asked, chosen.get(pool, ()), read)
        return is_short

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
            self._current(session, now_ms)
            split = self._split(dict.fromkeys(kinds, limit), kinds)
            for pool, names in kinds.items():
                count: int = session.value(
                    "count_runnable",
                    pool=pool,
                    kinds=as_json(split.plain.get(pool, ())),
                    limit=limit,
                    now_ms=now_ms,
                )
                if pool in split.laned and count < limit:
                    by = limit - count, now_ms
                    count += self._due_in_lanes(session, pool, split.laned[pool], by)
                if count < limit:
                    laned = split.laned.get(pool, ())
                    held = self._held_kinds(session, laned, now_ms)
                    count += session.value(
                        "count_due",
                        pool=pool,
                        kinds=as_json(set(names) - held),
                        now_ms=now_ms,
                        promoted=STEP_JOBS,
                    )
                counts[pool] = min(count, limit)
        return counts

    def held_back(self, kinds: Mapping[str, Sequence[str]]) -> HeldBack | None:
        """See `Store.held_back`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            self._current(session, now_ms)
            laned = self._split(dict.fromkeys(kinds, 1), kinds).laned
            if laned and not self._in_force.is_granted:
                return HeldBack(None)
            return held_in_lanes(session, laned, now_ms)

    def runnable_kinds(self, pools: Collection[str]) -> list[tuple[str, str]]:
        """See `Store.runnable_kinds`."""
        with self._database.reading() as session:
            rows = session.rows(
                "kinds_in_pools", pools=as_json(sorted(pools)), limit=KINDS_MAX
            )
        return [(pool, kind) for pool, kind in rows]

    def _candidates(
        self,
        session: Session,
        found: Mapping[str, Sequence[Row]],
        wanted: Mapping[str, int],
        split: Split,
        claimer: tuple[str, int],
    ) -> tuple[dict[str, list[LeaseRow]], bool]:
        """Take out the jobs that have expired or cannot be read.

        Returns:
            The rows to lease by pool, and whether any were taken out, or are held by
            others, so that another call would find more.
        """
        chosen: dict[str, list[LeaseRow]] = {}
        is_short, (run_id, now_ms) = False, claimer
        for pool, first in found.items():
            best, limit, kinds = first, wanted[pool], split.plain[pool]
            if len(best) > limit:
                raise JobpoolBug(
                    f"a query for {limit} jobs returned {len(best)}; please report this"
                )
            if not best and limit > 0 and others_hold(session, pool, kinds, now_ms):
                by = {"run_id": run_id, "now_ms": now_ms}
                best, is_short = further(session, by, pool, kinds, limit), True
            chosen[pool], has_others = self._leasable(session, best, now_ms)
            is_short |= has_others
        return chosen, is_short

    def _leasable(
        self, session: Session, found: Sequence[Row], now_ms: int
    ) -> tuple[list[LeaseRow], bool]:
        """Return the rows that can be leased, and whether others were taken out."""
        rows, unreadable = read_leases(found)
        self._set_aside_unreadable(session, unreadable)
        late = {
            row.id
            for row in rows
            if row.expires_at_ms is not None
            and row.expires_at_ms <= now_ms
            and not row.attempt
        }
        expire(session, late, now_ms)
        if late:
            rows = [row for row in rows if row.id not in late]
        return rows, bool(unreadable or late)

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
            name, given = query(no_run, pool, kinds.get(pool, ()), STEP_JOBS)
            reached += session.rows(name, **given)
        known = as_json((pool, kind) for pool in wanted for kind in kinds.get(pool, ()))
        reached += session.rows("suspect_candidate", kinds=known, held="[]", **no_run)
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
