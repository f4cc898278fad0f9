"""Where quotas are to stand: until then nobody sets one, and no job waits for one."""

from __future__ import annotations

from collections.abc import Sequence

from jobpool.core.jobs.job import PermitAnswer, PermitAsk, PermitReturn, Throttle
from jobpool.core.rules.quotas.definition import Tenant
from jobpool.core.rules.quotas.rules import Override
from jobpool.errors import UsageError
from jobpool.store.records import BucketRow, QuotaRow, QuotaWait, TenantRow


class QuotaKeeping:
    """The part of the store that keeps quotas."""

    def take_permits(
        self, run_id: str, asks: Sequence[PermitAsk]
    ) -> list[PermitAnswer]:
        """See `Store.take_permits`."""
        raise _refused(run_id, asks)

    def return_permits(self, returns: Sequence[PermitReturn]) -> None:
        """See `Store.return_permits`."""
        raise _refused(returns)

    def block_buckets(self, blocks: Sequence[Throttle]) -> None:
        """See `Store.block_buckets`."""
        raise _refused(blocks)

    def permits_freed(self) -> bool:
        """See `Store.permits_freed`."""
        return False

    def quotas(self) -> list[QuotaRow]:
        """See `Store.quotas`."""
        return []

    def buckets(self, quota: str, limit: int = 100) -> list[BucketRow]:
        """See `Store.buckets`."""
        del quota, limit
        return []

    def waits_of(self, job_id: int) -> list[QuotaWait]:
        """See `Store.waits_of`."""
        del job_id
        return []

    def tenants(self) -> list[TenantRow]:
        """See `Store.tenants`."""
        return []

    def set_quota(self, override: Override, *, for_s: float | None = None) -> bool:
        """See `Store.set_quota`."""
        raise _refused(override, for_s)

    def reset_quota(self, name: str) -> bool:
        """See `Store.reset_quota`."""
        raise _refused(name)

    def set_tenant(self, tenant: Tenant, *, who: str | None = None) -> bool:
        """See `Store.set_tenant`."""
        raise _refused(tenant, who)

    def remove_tenant(self, name: str) -> bool:
        """See `Store.remove_tenant`."""
        raise _refused(name)


def _refused(*given: object) -> UsageError:
    return UsageError(f"this store has no quotas yet, and did nothing about {given}")
