"""What is done to quotas and to tenants' rules at run time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobpool.core.rules.quotas.definition import Tenant
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.rules import Override
from jobpool.operations.action import Action, Change, Done, Step
from jobpool.operations.principal import Principal
from jobpool.store.protocol import Store
from jobpool.store.records.quotas import BucketRow


class SetQuota(Action, frozen=True, kw_only=True):
    """Set numbers of a quota, above those that code and configuration have."""

    name = "quotas set"
    quota: str
    rate: Rate | None = None
    """None, as of the other numbers: it stays as it is."""
    burst: int | None = None
    concurrency: int | None = None
    for_s: float | None = None
    """None: until it is reset."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        numbers = _numbers(self.rate, self.burst, self.concurrency)
        return {"quota": self.quota, **numbers, **_given(for_s=self.for_s)}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del done
        override = Override(
            quota=self.quota,
            rate=self.rate,
            burst=self.burst,
            concurrency=self.concurrency,
            who=by.who,
            note=self.note,
        )
        yield lambda: Change(is_made=store.set_quota(override, for_s=self.for_s))


class ResetQuota(Action, frozen=True, kw_only=True):
    """Undo what was set, open what is blocked, close a breaker, fill up the rate."""

    name = "quotas reset"
    quota: str

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {"quota": self.quota}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        yield lambda: Change(is_made=store.reset_quota(self.quota))


class SetTenant(Action, frozen=True, kw_only=True):
    """Set the rule of a tenant, above the one that the configuration has."""

    name = "tenants set"
    tenant: Tenant

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        rule = self.tenant
        numbers = _numbers(rule.rate, rule.burst, rule.concurrency)
        return {"tenant": rule.name, **numbers, **_given(weight=rule.weight)}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del done
        yield lambda: Change(is_made=store.set_tenant(self.tenant, who=by.who))


class RemoveTenant(Action, frozen=True, kw_only=True):
    """Undo what was set for a tenant; the configuration's rule is in force again."""

    name = "tenants remove"
    tenant: str

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {"tenant": self.tenant}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        yield lambda: Change(is_made=store.remove_tenant(self.tenant))


def free(bucket: BucketRow) -> int | None:
    """Return how many permits of a bucket can be had now; None: it has no numbers."""
    if bucket.reason is not None:
        return 0
    held = None if bucket.cap is None else max(0, bucket.cap - bucket.used)
    known = [one for one in (held, bucket.free) if one is not None]
    return min(known, default=None)


def _numbers(
    rate: Rate | None, burst: int | None, concurrency: int | None
) -> dict[str, Any]:
    text = None if rate is None else str(rate)
    return _given(rate=text, burst=burst, concurrency=concurrency)


def _given(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
