"""What people see of quotas."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from jobpool.core.clock import Clock
from jobpool.core.rules.quotas.definition import TENANT, Quota
from jobpool.core.rules.quotas.lanes import bucket_id
from jobpool.core.rules.quotas.rules import Rules
from jobpool.core.rules.waits import Cause, cause_of
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.quotas.in_force import in_force, state_of, states_of
from jobpool.store.records.quotas import BucketRow, QuotaRow, QuotaWait, TenantRow
from jobpool.store.statements.quotas import (
    all_differing,
    bucket_row,
    differing_of,
    only_bucket,
    shortage,
    wait_of,
)


class QuotaReading:
    """The part of the store that shows quotas."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    def quotas(self) -> list[QuotaRow]:
        """See `Store.quotas`."""
        with self._session.reading:
            now_ms = self._clock.utc_ms()
            rules = in_force(self._database, now_ms)
            pauses = self._database.paused(now_ms)
            published = {
                quota.name
                for run in self._database.runs.values()
                if run.ended_at_ms is None
                for quota in run.limits.quotas
            }
            waits, _ = self._waiting(rules, now_ms)
            found = []
            for name in sorted(rules.quotas.keys() | rules.budgets.keys()):
                rows = self._buckets(name, rules, now_ms)
                definition = rules.quotas.get(name) or Quota(name=name)
                override = self._database.overrides.get(name)
                if override is not None and (override.until_ms or now_ms + 1) <= now_ms:
                    override = None
                found.append(
                    QuotaRow(
                        name=name,
                        quota=definition if name in published else None,
                        budget=rules.budgets.get(name),
                        override=override,
                        differing=differing_of(rules, name),
                        kinds=self._kinds_of(name, rules),
                        used=sum(row.used for row in rows if row.cap is not None),
                        waiting=waits[name],
                        blocked=sum(row.reason is not None for row in rows),
                        bucket=only_bucket(definition, rows, waits[name]),
                        paused=pauses.get(("quota", name)),
                    )
                )
        return found

    def differing_quotas(self) -> Mapping[str, str]:
        """See `Store.differing_quotas`."""
        with self._session.reading:
            return all_differing(in_force(self._database, self._clock.utc_ms()))

    def _kinds_of(self, name: str, rules: Rules) -> tuple[str, ...]:
        kinds = {kind for kind, _ in self._database.kinds}
        return tuple(
            sorted(
                kind
                for kind in kinds
                if any(need.quota == name for need in rules.needs_of(kind))
            )
        )

    def buckets(self, quota: str, limit: int = 100) -> list[BucketRow]:
        """See `Store.buckets`."""
        with self._session.reading:
            now_ms = self._clock.utc_ms()
            rules = in_force(self._database, now_ms)
            rows = self._buckets(quota, rules, now_ms)
        return sorted(rows, key=lambda row: (-row.waiting, row.value))[:limit]

    def _buckets(self, quota: str, rules: Rules, now_ms: int) -> list[BucketRow]:
        """Return the buckets that anything is known of."""
        values = {
            row.value for row in self._database.buckets.values() if row.quota == quota
        }
        values |= {
            use.value
            for lane in self._database.jobs.lanes
            for use in lane.uses
            if use.quota == quota
        }
        _, waiting = self._waiting(rules, now_ms)
        rows = []
        for value in values:
            bucket = bucket_id(quota, value)
            state = state_of(self._database, rules, bucket, quota, value)
            rows.append(bucket_row(state, quota, value, waiting[bucket], now_ms))
        return rows

    def waits_of(self, job_id: int) -> list[QuotaWait]:
        """See `Store.waits_of`."""
        with self._session.reading:
            now_ms = self._clock.utc_ms()
            rules = in_force(self._database, now_ms)
            lane = self._database.jobs.lanes.of_job(job_id)
            uses = () if lane is None else lane.uses
            states = states_of(self._database, rules, uses)
            found = (
                wait_of(
                    states[use.bucket],
                    use,
                    self._database.permits.holders(use.bucket),
                    now_ms,
                )
                for use in uses
            )
            return [one for one in found if one is not None]

    def tenants(self) -> list[TenantRow]:
        """See `Store.tenants`."""
        with self._session.reading:
            now_ms = self._clock.utc_ms()
            rules = in_force(self._database, now_ms)
            pauses = self._database.paused(now_ms)
            paused = {name for what, name in pauses if what == TENANT}
            _, waiting = self._waiting(rules, now_ms)
            rows = []
            for name in sorted(rules.tenants.keys() | paused):
                bucket = bucket_id(TENANT, name)
                was_set = self._database.tenants.get(name)
                rows.append(
                    TenantRow(
                        name=name,
                        tenant=rules.tenants.get(name),
                        is_set=was_set is not None,
                        who=None if was_set is None else was_set.who,
                        updated_at_ms=None if was_set is None else was_set.at_ms,
                        used=self._database.permits.in_use(bucket),
                        waiting=waiting[bucket],
                        paused=pauses.get((TENANT, name)),
                    )
                )
        return rows

    def _waiting(self, rules: Rules, now_ms: int) -> tuple[Counter[str], Counter[int]]:
        """Return how many runnable jobs wait, by quota and by bucket."""
        by_quota: Counter[str] = Counter()
        by_bucket: Counter[int] = Counter()
        for lane in self._database.jobs.lanes:
            states = states_of(self._database, rules, lane.uses)
            short = [
                use
                for use in lane.uses
                if shortage(states[use.bucket], use.cost, now_ms) is not None
            ]
            for use in short:
                by_bucket[use.bucket] += len(lane.jobs)
            for quota in {use.quota for use in short}:
                by_quota[quota] += len(lane.jobs)
        return by_quota, by_bucket

    def _blocked(self, now_ms: int) -> Counter[tuple[str, str]]:
        """Return how many runnable jobs wait for a quota, by pool and kind."""
        held = self._held_by_cause(now_ms)
        return Counter({place: causes.total() for place, causes in held.items()})

    def _held_by_cause(self, now_ms: int) -> dict[tuple[str, str], Counter[Cause]]:
        """Return the same by cause."""
        rules = in_force(self._database, now_ms)
        found: defaultdict[tuple[str, str], Counter[Cause]] = defaultdict(Counter)
        for lane in self._database.jobs.lanes:
            states = states_of(self._database, rules, lane.uses)
            for use in lane.uses:
                state = states[use.bucket]
                if shortage(state, use.cost, now_ms) is not None:
                    cause = cause_of(state, now_ms)
                    found[lane.pool, lane.kind][cause] += len(lane.jobs)
                    break
        return found
