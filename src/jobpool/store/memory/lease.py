"""Leasing: due jobs of known kinds are granted under fresh tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice, takewhile
from typing import NamedTuple

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.jobs.job import JobState, Lease, Scheduled
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import JobEvent, after
from jobpool.errors import StoreRefused, StoreWentBack
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.flows.fold import fold
from jobpool.store.memory.quotas.claim import Claim
from jobpool.store.memory.quotas.shares import Head
from jobpool.store.memory.set_apart.misfits import MisfitKeeping
from jobpool.store.memory.set_apart.suspects import SuspectKeeping
from jobpool.store.memory.tables.ordered_set import (
    RankSet,
    id_of,
    rank_by_priority,
    time_of,
)
from jobpool.store.memory.tables.rows import NOT_BEGUN, Held, Row, lease_from
from jobpool.store.operations.due import STEP_JOBS, in_s
from jobpool.store.operations.lease import KINDS_MAX
from jobpool.store.records.jobs import HeldBack, LeaseBatch
from jobpool.store.records.runs import Run
from jobpool.store.statements.schedules import scheduled_from
from jobpool.store.statements.validation import COUNT_MAX, STORE_PAUSE

_replace = msgspec.structs.replace
_LEASED = JobState.LEASED
_EXPIRED = ("expired before an attempt began", "expired while it was snoozed")


class _Wish(NamedTuple):
    """What a run wants of a pool."""

    pool: str
    kinds: Sequence[str]
    limit: int
    ahead: int
    """So many of them have no slot yet."""


class Leasing(SuspectKeeping, MisfitKeeping):
    """The part of the store that grants leases."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    @property
    @abstractmethod
    def one_host(self) -> bool:
        """See `Store.one_host`."""

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
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            run = self._known_run(run_id)
            if run.ended_at_ms is not None:
                raise StoreRefused(
                    f"run {run_id} has ended in the store {self._database.url} and "
                    "gets no leases; restart jobpool"
                )
            is_lapsed = not self.one_host and run.lease_until_ms <= now_ms
            is_outdated = self._database.is_outdated(run)
            is_paused = STORE_PAUSE in self._database.paused(now_ms)
            if is_outdated or is_lapsed or is_paused:
                return LeaseBatch(outdated=is_outdated, lapsed=is_lapsed)
            self._expire_late(now_ms)
            folded = fold(self._database, now_ms)
            self._promote_due(now_ms)
            claim = Claim(self._database, now_ms, slow_s)
            left = self._left_to_others(run_id, now_ms)
            suspect, suspects_wait = self._next_suspect(
                wanted, kinds, left, claim, may=suspects
            )
            if (suspects_wait and not suspects) or self._has_probation_beside(
                run, now_ms
            ):
                suspect, suspects_wait, wanted = None, True, {}
            suspect_head = None
            if suspect is not None:
                pool = suspect.new.pool
                wanted = {} if alone else {**wanted, pool: wanted[pool] - 1}
                suspect_head = claim.reserved(suspect, run_id)
            wishes = [
                _Wish(pool, kinds.get(pool, ()), limit, (ahead or {}).get(pool, 0))
                for pool, limit in wanted.items()
            ]
            leases, is_short = self._lease_best(claim, run_id, wishes, left)
            if suspect is not None:  # last, for the highest token
                granted = self._grant(suspect, run_id, now_ms)
                if suspect_head is not None:
                    granted = claim.take_reserved(suspect_head, granted)
                leases.append(_replace(granted, suspect=True))
            claim.finish()
            first = self._database.jobs.pending.first()
        times = [] if first is None else [time_of(first)]
        if claim.opens_at_ms is not None:
            times.append(claim.opens_at_ms)
        due_ms = min(times, default=None)
        if is_short or folded.is_short:
            due_ms = now_ms
        next_due_in_s = None if due_ms is None else max(0.0, (due_ms - now_ms) / 1000)
        return LeaseBatch(
            leases=tuple(leases),
            next_due_in_s=next_due_in_s,
            suspects_wait=suspects_wait,
            opened=folded.opened,
        )

    def _next_suspect(
        self,
        wanted: Mapping[str, int],
        kinds: Mapping[str, Sequence[str]],
        left: frozenset[int],
        claim: Claim,
        *,
        may: bool,
    ) -> tuple[Row | None, bool]:
        """Return the next suspect, and whether others wait for their turn."""
        jobs, suspects = self._database.jobs, self._database.suspects
        found = [jobs.get(job_id) for job_id in suspects] if suspects else []
        rows = [row for row in found if row is not None]
        due = [
            row
            for row in rows
            if row.state is JobState.RUNNABLE
            and row.id not in left
            and wanted.get(row.new.pool, 0) > 0
            and row.new.kind
            in self._leasable(row.new.pool, kinds.get(row.new.pool, ()))
            and not claim.blocks(row)
        ]
        if not may or not due or any(row.held is not None for row in rows):
            return None, bool(due)
        first = min(due, key=_turn)
        return first, len(due) > 1

    def _first(self, queue: RankSet, passed: frozenset[int]) -> int | None:
        """Return the best rank of a queue among the jobs that are not skipped."""
        if not passed:
            return queue.first()
        ranks = queue.lowest(len(passed) + 1)
        return next((rank for rank in ranks if id_of(rank) not in passed), None)

    def leases_of(self, run_id: str) -> list[Lease]:
        """See `Store.leases_of`."""
        with self._session.reading:
            jobs = self._database.jobs
            rows = [jobs[job_id] for job_id in sorted(jobs.held.get(run_id, ()))]
            suspects, unfit = self._database.suspects, self._unfit()
            return [
                _replace(
                    lease_from(row, row.held),
                    suspect=row.id in suspects,
                    unfit=row.id in unfit,
                )
                for row in rows
                if row.held is not None
            ]

    def runnable_kinds(self, pools: Collection[str]) -> list[tuple[str, str]]:
        """See `Store.runnable_kinds`."""
        with self._session.reading:
            found = sorted(
                (pool, kind)
                for (pool, kind), queue in self._database.jobs.runnable.items()
                if pool in pools and queue
            )
        return found[:KINDS_MAX]

    def held_back(self, kinds: Mapping[str, Sequence[str]]) -> HeldBack | None:
        """See `Store.held_back`."""
        with self._session.reading:
            now_ms = self._clock.utc_ms()
            passed = self._database.suspects.keys() | self._left(now_ms)
            claim = Claim(self._database, now_ms)
            runnable = self._database.jobs.runnable
            waits = is_open = False
            for pool, names in kinds.items():
                laned = claim.laned(pool, self._leasable(pool, names))
                is_open |= bool(claim.heads(pool, laned, passed, 1, 0))
                waits |= any(runnable.get((pool, kind)) for kind in laned)
        if not waits:
            return None
        return HeldBack(0.0 if is_open else in_s(claim.opens_at_ms, now_ms))

    def due(self, kinds: Mapping[str, Sequence[str]], limit: int) -> dict[str, int]:
        """See `Store.due`."""
        with self._session.reading:
            now_ms = self._clock.utc_ms()
            passed = self._database.suspects.keys() | self._left(now_ms)
            claim = Claim(self._database, now_ms)
            counts: dict[str, int] = {}
            for pool, names in kinds.items():
                leasable = self._leasable(pool, names)
                laned = claim.laned(pool, leasable)
                known = leasable - laned
                jobs = self._database.jobs
                count = sum(
                    len(jobs.runnable[pool, kind])
                    for kind in known
                    if (pool, kind) in jobs.runnable
                )
                suspected = map(jobs.get, passed)
                count -= sum(
                    row is not None
                    and row.state is JobState.RUNNABLE
                    and row.new.pool == pool
                    and row.new.kind in known
                    for row in suspected
                )
                if laned and count < limit:
                    count += len(claim.heads(pool, laned, passed, limit, 0))
                if count < limit:
                    held = claim.held_kinds(laned)
                    count += self._count_due(pool, leasable - held, now_ms)
                counts[pool] = min(count, limit)
        return counts

    def _count_due(self, pool: str, kinds: set[str], now_ms: int) -> int:
        """Count the jobs that the next lease would promote."""
        jobs, count = self._database.jobs, 0
        for rank in jobs.pending.lowest(STEP_JOBS):
            if time_of(rank) > now_ms:
                break
            new = jobs[id_of(rank)].new
            count += new.pool == pool and new.kind in kinds
        return count

    def _known_run(self, run_id: str) -> Run:
        run = self._database.runs.get(run_id)
        if run is None:
            raise StoreWentBack(
                f"the store {self._database.url} does not know run {run_id}: it is "
                "not the one in which it began; restart jobpool"
            )
        return run

    def _leasable(self, pool: str, kinds: Sequence[str]) -> set[str]:
        """Return which of these kinds of a pool are not paused."""
        pauses = self._database.paused(self._clock.utc_ms())
        if ("pool", pool) in pauses or STORE_PAUSE in pauses:
            return set()
        return {kind for kind in kinds if ("kind", kind) not in pauses}

    def _lease_best(
        self,
        claim: Claim,
        run_id: str,
        wishes: Sequence[_Wish],
        left: frozenset[int],
    ) -> tuple[list[Lease], bool]:
        """Lease the best jobs, and say whether some had expired instead."""
        leases: list[Lease] = []
        is_short = False
        for wish in wishes:
            for row, head in self._chosen(claim, wish, left):
                if row.is_late(claim.now_ms):
                    self._expire(row, claim.now_ms)
                    is_short = True
                    continue
                lease = self._grant(row, run_id, claim.now_ms)
                if head is not None:
                    lease = claim.take(head, lease, run_id)
                leases.append(lease)
        return leases, is_short

    def _chosen(
        self, claim: Claim, wish: _Wish, left: frozenset[int]
    ) -> Iterator[tuple[Row, Head | None]]:
        """Yield the jobs to lease, the best first, with what quotas allow of them.

        The caller must move each job out of its queue, and take its permits, before it
        takes the next.
        """
        pool, kinds, limit, ahead = wish
        laned = claim.laned(pool, kinds)
        plain = self._best(pool, [kind for kind in kinds if kind not in laned], left)
        if not laned:
            for row in islice(plain, max(0, limit)):
                yield row, None
            return
        known, passed = self._leasable(pool, sorted(laned)), self._passed(left)
        following = next(plain, None)
        heads = claim.heads(pool, known, passed, limit, ahead)
        while heads:
            for head in heads:
                while limit > 0 and following and _rank(following) < head.rank:
                    yield following, None
                    following, limit = next(plain, None), limit - 1
                if limit <= 0:
                    return
                yield self._database.jobs[id_of(head.rank)], head
                limit -= 1
            # Again, since lanes had fewer jobs than they were allotted; but not for
            # what has no slot yet: it would get half of the other half.
            heads = claim.heads(pool, known, passed, limit - ahead, 0)
        while limit > 0 and following is not None:
            yield following, None
            following, limit = next(plain, None), limit - 1

    def _passed(self, left: frozenset[int]) -> frozenset[int]:
        """Return the jobs that are not leased in their turn."""
        return left.union(self._database.suspects)

    def _best(
        self, pool: str, kinds: Sequence[str], left: frozenset[int]
    ) -> Iterator[Row]:
        """Yield the runnable jobs of these kinds, the best first.

        The caller must move each job out of its queue before it takes the next.
        """
        jobs = self._database.jobs
        passed = self._passed(left)
        heads: list[tuple[int, RankSet]] = []
        for kind in self._leasable(pool, kinds):
            queue = jobs.runnable.get((pool, kind))
            rank = None if queue is None else self._first(queue, passed)
            if queue is not None and rank is not None:
                heads.append((rank, queue))
        heapify(heads)
        while heads:
            rank, queue = heads[0]
            yield jobs[id_of(rank)]
            following = self._first(queue, passed)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following, queue))

    def _grant(self, row: Row, run_id: str, now_ms: int) -> Lease:
        held = Held(self._database.take_token(), run_id, now_ms)
        leased: Row = _replace(
            row,
            state=_LEASED,
            held=held,
            begun=NOT_BEGUN,
            attempt=min(row.attempt + 1, COUNT_MAX),
        )
        if row.shared is not None and row.shared.until_start:
            leased = _replace(leased, new=_replace(row.new, unique=None))
        self._database.put_job(row, leased)
        lease = lease_from(leased, held)
        if self._unfit_since_ms(row.id) is not None:
            lease = _replace(lease, unfit=True)
        if row.tick is not None:
            lease = _replace(lease, schedule=self._scheduled(row.tick, now_ms))
        return lease

    def _scheduled(self, tick_id: int, now_ms: int) -> Scheduled | None:
        tick = self._database.ticks.get(tick_id)
        of = None if tick is None else self._database.schedules.get(tick.schedule)
        if tick is None or of is None:
            return None
        return scheduled_from(
            of.name, tick.nominal_ms, of.rule, tick.backfilled, now_ms=now_ms
        )

    def _expire_late(self, now_ms: int) -> None:
        # As they are now: one that follows one of these may be late as well, later.
        expiring = self._database.jobs.expiring.lowest(STEP_JOBS)
        for rank in list(takewhile(lambda rank: time_of(rank) <= now_ms, expiring)):
            self._expire(self._database.jobs[id_of(rank)], now_ms)

    def _expire(self, row: Row, now_ms: int) -> None:
        self._database.put_job(
            row,
            _replace(
                row,
                state=after(row.state, JobEvent.EXPIRE),
                finished_at_ms=now_ms,
                ended=_replace(row.ended, reason=_EXPIRED[bool(row.snoozes)]),
            ),
        )

    def _promote_due(self, now_ms: int) -> None:
        pending = self._database.jobs.pending
        for _ in range(STEP_JOBS):
            rank = pending.first()
            if rank is None or time_of(rank) > now_ms:
                return
            row = self._database.jobs[id_of(rank)]
            state = after(row.state, JobEvent.FALL_DUE)
            self._database.put_job(row, _replace(row, state=state))


def _rank(row: Row) -> int:
    return rank_by_priority(row.new.priority, row.run_at_ms, row.id)


def _turn(row: Row) -> tuple[int, int, int, int]:
    """Return a suspect's rank: the one whose lost attempt began last comes first."""
    lost = [
        tried.shown.token for tried in row.tried if tried.past.outcome is Outcome.LOST
    ]
    return -max(lost, default=0), -row.new.priority, row.run_at_ms, row.id
