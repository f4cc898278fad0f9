"""What is published, set and reset of quotas and tenants."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.formats import QUOTAS
from jobpool.core.rules.quotas.breaker import Breaker, BreakerState
from jobpool.core.rules.quotas.definition import KIND_PREFIX, Tenant
from jobpool.core.rules.quotas.rules import Override
from jobpool.core.rules.quotas.window import Window
from jobpool.store.memory.database import MemoryDatabase, Session, SetTenant
from jobpool.store.memory.quotas.shares import forget_shares
from jobpool.store.records.runs import KindRecord, Run
from jobpool.store.statements.quotas import added_to, checked_tenant
from jobpool.store.statements.validation import clean_text, pause_end_ms

_replace = msgspec.structs.replace


class QuotaKeeping:
    """The part of the store that keeps what quotas say."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock
    require: Callable[[int], None]
    """See `Store.require`."""

    def set_quota(self, override: Override, *, for_s: float | None = None) -> bool:
        """See `Store.set_quota`."""
        if override.quota.startswith(KIND_PREFIX):
            self.require(QUOTAS)
        with self._session.writing:
            table, now_ms = self._database.overrides, self._clock.utc_ms()
            former = table.get(override.quota)
            if former is not None and (former.until_ms or now_ms + 1) <= now_ms:
                former = None
            added = added_to(former, override, pause_end_ms(now_ms, for_s))
            if former is not None and _is_same(former, added):
                return False
            self._database.put(table, override.quota, added)
            self._database.change_limits()
        return True

    def reset_quota(self, name: str) -> bool:
        """See `Store.reset_quota`."""
        with self._session.writing:
            table, now_ms = self._database.overrides, self._clock.utc_ms()
            former = table.get(name)
            is_done = former is not None and (former.until_ms or now_ms + 1) > now_ms
            if former is not None:
                self._database.put(table, name, None)
            for bucket, row in list(self._database.buckets.items()):
                opened = _replace(row, breaker=Breaker(), window=Window())
                if row.quota == name and (
                    row.block_until_ms > now_ms
                    or row.tat_us > now_ms * 1000
                    or row != opened
                ):
                    opened = _replace(opened, tat_us=0, block_until_ms=0)
                    self._database.put(self._database.buckets, bucket, opened)
                    is_done = True
            if is_done:
                self._database.change_limits()
        return is_done

    def set_tenant(self, tenant: Tenant, *, who: str | None = None) -> bool:
        """See `Store.set_tenant`."""
        checked = checked_tenant(tenant)
        self.require(QUOTAS)
        with self._session.writing:
            table = self._database.tenants
            former = table.get(tenant.name)
            if former is not None and former.tenant == checked:
                return False
            added = SetTenant(checked, clean_text(who), self._clock.utc_ms())
            self._database.put(table, tenant.name, added)
            self._database.change_limits()
        return True

    def remove_tenant(self, name: str) -> bool:
        """See `Store.remove_tenant`."""
        with self._session.writing:
            table = self._database.tenants
            is_set = name in table
            if is_set:
                self._database.put(table, name, None)
                self._database.change_limits()
        return is_set

    def _ask_for_quotas(self, run: Run, kinds: Sequence[KindRecord]) -> None:
        """Have older code lease no more, if a run's application has quotas."""
        if run.limits.is_asking or any(kind.needs for kind in kinds):
            self._database.want_format(QUOTAS)

    def _forget_quotas(self, now_ms: int, before_ms: int) -> None:
        """Delete what has ended, and buckets that nothing was taken of for long."""
        overrides = self._database.overrides
        for name, override in list(overrides.items()):
            if override.until_ms is not None and override.until_ms <= now_ms:
                self._database.put(overrides, name, None)
        permits, buckets = self._database.permits, self._database.buckets
        for bucket, row in list(buckets.items()):
            is_idle = row.used_at_ms < before_ms and not permits.in_use(bucket)
            is_idle &= row.breaker.state is BreakerState.CLOSED
            last_ms = max(row.block_until_ms, row.tat_us // 1000)
            if is_idle and last_ms < now_ms:
                self._database.put(buckets, bucket, None)
        forget_shares(self._database)


def _is_same(former: Override, added: Override) -> bool:
    """Say whether nothing is changed, but for who did it."""
    note = former.note if added.note is None else added.note
    return _replace(added, who=former.who, note=note) == former
