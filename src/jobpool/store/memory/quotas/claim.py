"""The part of a lease that concerns quotas: which jobs of which lanes may begin."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import islice

import msgspec

from jobpool.core.jobs.job import Lease
from jobpool.core.rules.quotas.allot import Allotment, LaneState, allot, cost_in
from jobpool.core.rules.quotas.breaker import Probe
from jobpool.core.rules.quotas.budget import begun
from jobpool.core.rules.quotas.gcra import SLOW_MAX_S, settled, taken
from jobpool.core.rules.quotas.rules import Rules, Use
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.quotas.in_force import (
    in_force,
    is_granted,
    state_of,
    states_of,
)
from jobpool.store.memory.quotas.shares import Found, Head, Turns
from jobpool.store.memory.tables.lanes import Lane
from jobpool.store.memory.tables.ordered_set import id_of, rank_by_priority
from jobpool.store.memory.tables.permits import Bucket, Permit, PermitKey
from jobpool.store.memory.tables.rows import Row
from jobpool.store.statements.quotas import shortage

_replace = msgspec.structs.replace
_RESERVED = 0
"""No lease has this token."""


class Claim:
    """What quotas allow within one call of `Store.lease`.

    Attributes:
        now_ms: the store's clock.
        opens_at_ms: when the first of the lanes reopens that it has found blocked until
            a time; None: there is none.
    """

    def __init__(
        self, database: MemoryDatabase, now_ms: int, slow_s: float = 0.0
    ) -> None:
        self._database = database
        self._slow_s = min(slow_s, SLOW_MAX_S)
        self._have_paid: set[int] = set()
        """Buckets that have paid for a slow answer."""
        self.now_ms = now_ms
        self._rules: Rules = in_force(database, now_ms)
        self._turns = Turns(database, self._rules)
        self._blocked: set[int] = set()
        self._contested: list[Use] = []
        self.opens_at_ms: int | None = None

    def laned(self, pool: str, kinds: Collection[str]) -> set[str]:
        """Return which of these kinds of a pool are leased from lanes."""
        if self._rules.is_empty:
            return set()
        return {kind for kind in kinds if self._rules.is_laned(pool, kind)}

    def held_kinds(self, kinds: Collection[str]) -> set[str]:
        """Return the laned kinds of which no job may begin now, whatever it is of."""
        uses = {kind: self._rules.uses(kind, None, {}) for kind in kinds}
        needed = [use for of_kind in uses.values() for use in of_kind]
        states = states_of(self._database, self._rules, needed)
        return {
            kind
            for kind, of_kind in uses.items()
            for use in of_kind
            if shortage(states[use.bucket], use.cost, self.now_ms) is not None
        }

    def heads(
        self,
        pool: str,
        kinds: Collection[str],
        passed: Collection[int],
        want: int,
        ahead: int,
    ) -> list[Head]:
        """Return what may begin of kinds that quotas concern, the best first.

        It fits the buckets as they are now, all of it together. So after leases were
        granted, what was not granted may only be looked at anew.

        Args:
            pool: whose jobs.
            kinds: which of them.
            passed: jobs that are left out.
            want: most jobs.
            ahead: how many of them no slot is free for.
        """
        if want <= 0 or not is_granted(self._database):
            return []
        firsts = {
            lane: first[0]
            for kind in kinds
            for lane in self._database.jobs.lanes.of_kind(pool, kind)
            if (first := _lowest(lane, passed, 1))
        }
        lanes = {lane.id: lane for lane in firsts}
        left_out = Counter(map(self._database.jobs.lanes.of_job, passed))
        states = {
            lane.id: self._turns.state(lane, rank, len(lane.jobs) - left_out[lane])
            for lane, rank in firsts.items()
        }
        if self._rules.aging_ms(pool):
            jobs = {
                one.lane: _lowest(lanes[one.lane], passed, want)
                for one in self._allot(states.values(), want, ahead)
                if one.opens_at_ms is None and one.blocked_by is None
            }
            unblocked = [states[lane] for lane in jobs]
            states = {one.id: one for one in self._turns.by_age(unblocked, jobs, want)}
        return self._turns.heads(
            Found(
                states[one.lane],
                lanes[one.lane],
                _lowest(lanes[one.lane], passed, one.most),
                one.begin_within_s,
            )
            for one in self._allot(states.values(), want, ahead)
        )

    def blocks(self, row: Row) -> bool:
        """Say whether quotas hold back a runnable job now."""
        lane = self._database.jobs.lanes.of_job(row.id)
        return lane is not None and self.head_of(row) is None

    def head_of(self, row: Row) -> Head | None:
        """Return a runnable job that quotas concern if it may begin now, else None."""
        lane = self._database.jobs.lanes.of_job(row.id)
        if lane is None or not is_granted(self._database):
            return None
        rank = rank_by_priority(row.new.priority, row.run_at_ms, row.id)
        (found,) = self._allot([self._turns.state(lane, rank)], 1, 0)
        return Head(0, 0.0, rank, lane, found.begin_within_s) if found.most else None

    def _allot(
        self, states: Collection[LaneState], want: int, ahead: int
    ) -> tuple[Allotment, ...]:
        uses = [use for state in states for use in state.uses]
        find_lost_probes(self._database, uses, self.now_ms)
        buckets = states_of(self._database, self._rules, uses)
        found = allot(states, buckets, want, ahead, self.now_ms)
        for one in found:
            if (opens_ms := one.opens_at_ms) is not None:
                self.opens_at_ms = min(self.opens_at_ms or opens_ms, opens_ms)
            if one.opens_at_ms is not None or one.blocked_by is not None:
                self._blocked.add(one.lane)
        self._contested += [
            use for state in states if state.id in self._blocked for use in state.uses
        ]
        return found

    def finish(self) -> None:
        """Remember for which buckets jobs wait, so that who frees them wakes others."""
        self._turns.set_clocks()
        for use in self._contested:
            new = Bucket(use.quota, use.value, used_at_ms=self.now_ms)
            contest(self._database, self._rules, use.bucket, new)

    def take(self, head: Head, lease: Lease, run_id: str) -> Lease:
        """Take the permits of a job that was just leased, and return its lease."""
        self._take(head, lease.id, lease.token, run_id)
        return self._granted(lease, head)

    def _granted(self, lease: Lease, head: Head) -> Lease:
        within_s = head.begin_within_s
        if within_s is not None:
            within_s += self._slow_s
        return _replace(lease, laned=True, begin_within_s=within_s)

    def reserved(self, row: Row, run_id: str) -> Head | None:
        """Take the permits of a job that is leased last, so that no other gets them.

        Returns:
            What `take_reserved` needs; None: quotas do not concern it.
        """
        head = self.head_of(row)
        if head is not None:
            self._take(head, row.id, _RESERVED, run_id)
        return head

    def take_reserved(self, head: Head, lease: Lease) -> Lease:
        """Give the job that was leased last what was reserved for it."""
        permits = self._database.permits
        for key in tuple(permits.of_token.get(_RESERVED, ())):
            permit = permits.get(key)
            self._database.put(permits, key, None)
            self._database.put(permits, key._replace(token=lease.token), permit)
            row = self._database.buckets.get(key.bucket)
            probe = Probe(_RESERVED, lease.id)
            if row is not None and row.breaker.probe == probe:
                breaker = row.breaker.probed_by(Probe(lease.token, lease.id))
                probed = _replace(row, breaker=breaker)
                self._database.put(self._database.buckets, key.bucket, probed)
        return self._granted(lease, head)

    def _take(self, head: Head, job_id: int, token: int, run_id: str) -> None:
        self._turns.take(head.lane)
        for use in head.lane.uses:
            take_permit(
                self._database,
                self._rules,
                PermitKey(use.bucket, token, 0),
                Permit(job_id, run_id, use.cost, self.now_ms * 1000),
                Bucket(use.quota, use.value, used_at_ms=self.now_ms),
                slow_s=0.0 if use.bucket in self._have_paid else self._slow_s,
            )
            self._have_paid.add(use.bucket)


def take_permit(
    database: MemoryDatabase,
    rules: Rules,
    key: PermitKey,
    permit: Permit,
    new: Bucket,
    *,
    slow_s: float = 0.0,
) -> None:
    """Store a permit that was found to be free.

    Args:
        database: where.
        rules: in force.
        key: its key.
        permit: at its full cost, taken now.
        new: its bucket, if nothing is known of it.
        slow_s: it may be used so much later.
    """
    row = database.buckets.get(key.bucket) or new
    limit = state_of(database, rules, key.bucket, row.quota, row.value).limit
    cost, now_us = cost_in(limit, permit.cost), permit.taken_us
    row, now_ms = _replace(row, used_at_ms=new.used_at_ms), new.used_at_ms
    if limit.budget is not None:  # Nothing is held of it.
        firsts, retries = (0, 1) if permit.cost else (1, 0)
        window = begun(row.window, now_ms, firsts=firsts, retries=retries)
        database.put(database.buckets, key.bucket, _replace(row, window=window))
        return
    if limit.breaker is not None and row.breaker.at(now_ms).wants_probe:
        probe = Probe(key.token, permit.job_id)
        row = _replace(row, breaker=row.breaker.probed_by(probe))
    if limit.pace is not None:
        slow_us = math.ceil(slow_s * 1e6)
        tat_us = taken(limit.pace, row.tat_us, now_us, cost, slow_us)
        row = _replace(row, tat_us=tat_us)
    database.put(database.buckets, key.bucket, row)
    database.put(database.permits, key, _replace(permit, cost=cost))


def find_lost_probes(
    database: MemoryDatabase, uses: Iterable[Use], now_ms: int
) -> None:
    """Look whether attempts that are to answer for a service have ended."""
    for bucket in {use.bucket for use in uses}:
        row = database.buckets.get(bucket)
        if row is None or (probe := row.breaker.probe) is None:
            continue
        job = database.jobs.get(probe.job_id)
        held = None if job is None else job.held
        if held is None or held.token != probe.token:
            missed = _replace(row, breaker=row.breaker.missed(now_ms))
            database.put(database.buckets, bucket, missed)


def contest(database: MemoryDatabase, rules: Rules, bucket: int, new: Bucket) -> None:
    """Remember that somebody waits for a bucket.

    Args:
        database: where.
        rules: in force.
        bucket: its id.
        new: what it is, if nothing is known of it; used now.
    """
    former = database.buckets.get(bucket)
    row = former or new
    pace = rules.limit(row.quota, row.value).pace
    tat_us = row.tat_us
    if pace is not None:  # else, after the clock was set back, it would stay empty
        tat_us = settled(pace, tat_us, new.used_at_ms * 1000)
    if former is None or not row.contested or tat_us != row.tat_us:
        contested = _replace(row, contested=True, tat_us=tat_us)
        database.put(database.buckets, bucket, contested)


def _lowest(lane: Lane, passed: Collection[int], most: int) -> list[int]:
    """Return the first jobs of a lane, as ranks."""
    ranks = lane.jobs.lowest(most + len(passed))
    return list(islice((rank for rank in ranks if id_of(rank) not in passed), most))
