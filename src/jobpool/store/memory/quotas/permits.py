"""Permits of running attempts, and their return when a lease ends."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.jobs.job import (
    TIME_MAX_MS,
    PermitAnswer,
    PermitAsk,
    PermitReturn,
    RequestReport,
    Throttle,
)
from jobpool.core.rules.quotas.allot import LaneState, allot, cost_in
from jobpool.core.rules.quotas.breaker import BreakerChange, reported
from jobpool.core.rules.quotas.gcra import returned
from jobpool.core.rules.quotas.lanes import bucket_id
from jobpool.core.rules.quotas.rules import Rules, Use
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.quotas.claim import (
    contest,
    find_lost_probes,
    take_permit,
)
from jobpool.store.memory.quotas.in_force import in_force, state_of
from jobpool.store.memory.tables.permits import Bucket, Permit, PermitKey
from jobpool.store.statements.quotas import change_of, counts_by_use
from jobpool.store.statements.validation import fit_delay_ms

_replace = msgspec.structs.replace
_STALE = PermitAnswer(granted=False, stale=True)
_GRANTED = PermitAnswer(granted=True)


class PermitKeeping:
    """The part of the store that gives and takes permits besides leases."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock
    _has_freed = False

    def take_permits(
        self, run_id: str, asks: Sequence[PermitAsk]
    ) -> list[PermitAnswer]:
        """See `Store.take_permits`."""
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            rules = in_force(self._database, now_ms)
            return [self._take(run_id, ask, rules, now_ms) for ask in asks]

    def _take(
        self, run_id: str, ask: PermitAsk, rules: Rules, now_ms: int
    ) -> PermitAnswer:
        row = self._database.jobs.get(ask.job_id)
        held = None if row is None else row.held
        if held is None or (held.token, held.run_id) != (ask.token, run_id):
            return _STALE
        key = PermitKey(bucket_id(ask.quota, ask.value), ask.token, ask.n)
        if self._database.permits.get(key) is not None:
            return _GRANTED
        use = Use(key.bucket, ask.quota, ask.value, ask.cost)
        find_lost_probes(self._database, [use], now_ms)
        state = state_of(self._database, rules, key.bucket, ask.quota, ask.value)
        if cost_in(state.limit, ask.cost) < ask.cost:
            return _STALE
        lane = LaneState(0, "", "", 0, 0.0, (use,))
        (found,) = allot([lane], {key.bucket: state}, 1, 0, now_ms)
        new = Bucket(ask.quota, ask.value, used_at_ms=now_ms)
        if not found.most:
            contest(self._database, rules, key.bucket, new)
            opens_ms = found.opens_at_ms
            wait_s = None if opens_ms is None else max(0, opens_ms - now_ms) / 1000
            return PermitAnswer(granted=False, retry_in_s=wait_s)
        take_permit(
            self._database,
            rules,
            key,
            Permit(ask.job_id, run_id, ask.cost, now_ms * 1000),
            new,
        )
        return _GRANTED

    def return_permits(self, returns: Sequence[PermitReturn]) -> None:
        """See `Store.return_permits`."""
        with self._session.writing:
            for token, n in returns:
                self._drop([k for k in self._permits_of(token) if k.n == n])

    def block_buckets(self, blocks: Sequence[Throttle]) -> None:
        """See `Store.block_buckets`."""
        with self._session.writing:
            for block in blocks:
                self._block(block)

    def report_requests(self, reports: Sequence[RequestReport]) -> list[BreakerChange]:
        """See `Store.report_requests`."""
        changes = []
        with self._session.writing:
            now_ms, table = self._clock.utc_ms(), self._database.buckets
            rules = in_force(self._database, now_ms)
            for use, counts in counts_by_use(reports).items():
                rule = rules.limit(use.quota, use.value).breaker
                if rule is None:
                    continue
                row = table.get(use.bucket) or Bucket(use.quota, use.value)
                found = reported(row.breaker, rule, counts, now_ms)
                counted = _replace(row, breaker=found.breaker, used_at_ms=now_ms)
                self._database.put(table, use.bucket, counted)
                if found.breaker.state is not row.breaker.at(now_ms).state:
                    changes.append(change_of(use, found))
        self._has_freed |= bool(changes)
        return changes

    def permits_freed(self) -> bool:
        """See `Store.permits_freed`."""
        has_freed, self._has_freed = self._has_freed, False
        return has_freed

    def _block(self, block: Throttle) -> None:
        """Block a bucket, within a transaction."""
        now_ms, table = self._clock.utc_ms(), self._database.buckets
        quota = in_force(self._database, now_ms).quotas.get(block.quota)
        after_ms = fit_delay_ms(block.after_ms)
        if quota is not None:
            after_ms = min(after_ms, round(quota.throttle_max_s * 1000))
        bucket = bucket_id(block.quota, block.value)
        row = table.get(bucket) or Bucket(block.quota, block.value)
        until_ms = max(row.block_until_ms, min(now_ms + after_ms, TIME_MAX_MS))
        blocked = _replace(row, block_until_ms=until_ms, used_at_ms=now_ms)
        self._database.put(table, bucket, blocked)

    def _end_permits(self, token: int, *, unbegun: bool = False) -> None:
        """Take back all permits of a lease that has ended, within a transaction.

        Args:
            token: the lease's.
            unbegun: its attempt never began: rates get back what it has used.
        """
        keys = self._permits_of(token)
        if unbegun:
            for key in keys:
                self._refund(key)
        self._drop(keys)

    def _permits_of(self, token: int) -> list[PermitKey]:
        return sorted(self._database.permits.of_token.get(token, ()))

    def _refund(self, key: PermitKey) -> None:
        now_ms = self._clock.utc_ms()
        permit = self._database.permits.get(key)
        row = self._database.buckets.get(key.bucket)
        if permit is None or row is None:
            return
        rules = in_force(self._database, now_ms)
        pace = rules.limit(row.quota, row.value).pace
        if pace is not None:
            tat_us = returned(
                pace, row.tat_us, now_ms * 1000, permit.cost, permit.taken_us
            )
            refunded = _replace(row, tat_us=tat_us)
            self._database.put(self._database.buckets, key.bucket, refunded)

    def _drop(self, keys: Sequence[PermitKey]) -> None:
        buckets = self._database.buckets
        for key in keys:
            self._database.put(self._database.permits, key, None)
            row = buckets.get(key.bucket)
            if row is not None and row.contested:
                self._has_freed = True
                freed = _replace(row, contested=False)
                self._database.put(buckets, key.bucket, freed)
