"""Rules: what is in force, of what runs publish and what operators have set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.budget import RetryBudget, names_of
from jobpool.core.rules.quotas.definition import (
    KIND_PREFIX,
    TENANT,
    Limits,
    Need,
    Quota,
    Tenant,
)
from jobpool.core.rules.quotas.gcra import Pace, pace
from jobpool.core.rules.quotas.lanes import bucket_id
from jobpool.core.rules.quotas.merging import (
    newest_budgets,
    newest_kinds,
    newest_pools,
    stricter_quota,
    stricter_tenant,
)
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.shares import BY_KIND, BY_TENANT, KindRule, PoolRule

EVERYBODY_ELSE = "*"
"""The tenant whose rule holds for those without one of their own."""
FOREVER_MS = 2**62
"""When a pause ends that has no end."""


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What one living run has published."""

    run_id: str
    label: str
    """Who that is, for messages: the host."""
    app_since_ms: int = 0
    """Since when it runs this version of its application: the newest says what a quota
    counts by."""
    limits: Limits = Limits()
    needs: Mapping[str, tuple[Need, ...]] = {}
    """By kind; its other names are in `limits`."""


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator has set for a quota; what is None stays as published."""

    quota: str
    rate: Rate | None = None
    burst: int | None = None
    concurrency: int | None = None
    until_ms: int | None = None
    """None: until it is reset."""
    who: str | None = None
    note: str | None = None


class TenantOverride(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator has set for a tenant; what is None stays as published."""

    tenant: Tenant
    who: str | None = None


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant or a quota of which nothing may begin."""

    what: str
    """``tenant`` or ``quota``; of other pauses nothing is said here."""
    name: str
    until_ms: int | None = None
    note: str | None = None


class Use(NamedTuple):
    """A job of a lane needs so many permits of a bucket."""

    bucket: int
    quota: str
    value: str
    cost: int


class Limit(NamedTuple):
    """What holds for a bucket."""

    concurrency: int | None = None
    pace: Pace | None = None
    closed_until_ms: int | None = None
    """It is paused until then (`FOREVER_MS`); None: it is not."""
    reason: str = ""
    """Why it is closed, for people."""
    breaker: BreakerRule | None = None
    budget: RetryBudget | None = None
    """Its permits are for retries; first attempts are counted, at no cost."""


class Rules:
    """What is in force, by kind, tenant and quota. Make it with `rules`.

    Attributes:
        version: ``limits_version`` of the store when this was read.
        until_ms: when to compile again, since something that was set ends; or None.
        quotas: by name, as they are in force; ``kind:K`` for a kind's own cap.
        tenants: by name.
        budgets: of retries, by the quota whose buckets they are (`budget.names_of`).
        pools: by name; only those that are fair or aged.
        kinds: by name; only those of which anything is said.
        differing: sentences about what runs publish in different ways.
    """

    def __init__(
        self,
        *,
        version: int,
        until_ms: int | None,
        quotas: Mapping[str, Quota],
        needs: Mapping[str, tuple[Need, ...]],
        tenants: Mapping[str, Tenant],
        budgets: Mapping[str, RetryBudget],
        pools: Mapping[str, PoolRule],
        kinds: Mapping[str, KindRule],
        pauses: Sequence[Pause],
        differing: tuple[str, ...],
    ) -> None:
        self.version = version
        self.until_ms = until_ms
        self.quotas = quotas
        self.tenants = tenants
        self.budgets = budgets
        self.pools = pools
        self.kinds = kinds
        self.differing = differing
        self._needs = needs
        self._closed = {(one.what, one.name): one for one in pauses}
        self._limits_tenants = any(
            one.concurrency is not None or one.rate is not None
            for one in tenants.values()
        )
        self._paused_tenants = {one.name for one in pauses if one.what == TENANT}

    @property
    def is_empty(self) -> bool:
        """Whether jobs of all kinds are leased in the plain order."""
        return not (self._needs or self._concerns_tenants or self.budgets or self.pools)

    @property
    def _concerns_tenants(self) -> bool:
        return self._limits_tenants or bool(self._paused_tenants)

    def is_budgeted(self, kind: str) -> bool:
        """Return whether retries of a kind's jobs are under a budget."""
        needed = ((need.quota, "") for need in self.needs_of(kind))
        return bool(self.budgets) and any(names_of(self.budgets, kind, needed))

    def is_laned(self, pool: str, kind: str) -> bool:
        """Return whether jobs of a kind in a pool are leased from lanes."""
        needs_room = kind in self._needs or self.is_budgeted(kind)
        return self._concerns_tenants or pool in self.pools or needs_room

    def fair(self, pool: str) -> str:
        """Return who has shares of a pool: ``tenant``, ``kind`` or, empty, nobody."""
        rule = self.pools.get(pool)
        return rule.fair if rule else ""

    def aging_ms(self, pool: str) -> float:
        """Return in which time what waits in a pool rises by one priority; 0: never."""
        rule = self.pools.get(pool)
        return rule.aging_ms if rule else 0.0

    def who(self, pool: str, kind: str, tenant: str | None) -> str:
        """Return whose share of a fair pool a job's start is taken from."""
        return kind if self.fair(pool) == BY_KIND else tenant or ""

    def weight(self, pool: str, kind: str, tenant: str | None) -> float:
        """Return the weight of that share; jobs without a tenant have weight 1."""
        if self.fair(pool) == BY_KIND:
            rule = self.kinds.get(kind)
            return rule.weight if rule else 1.0
        if self.fair(pool) == BY_TENANT and tenant is not None:
            return self._tenant(tenant).weight or 1.0
        return 1.0

    def needs_of(self, kind: str) -> tuple[Need, ...]:
        """Return what a job of a kind takes, by quota; without tenants' rules."""
        return self._needs.get(kind, ())

    def counted_paths(self, kind: str) -> tuple[str, ...]:
        """Return the paths of the arguments by which a kind's quotas count, sorted.

        They are the keys of ``quota_values``; jobs with others are stamped again.
        """
        paths = {self.quotas[need.quota].path for need in self.needs_of(kind)}
        return tuple(sorted(path for path in paths if path is not None))

    def uses(
        self,
        kind: str,
        tenant: str | None,
        values: Mapping[str, str],
        *,
        again: bool = False,
    ) -> tuple[Use, ...]:
        """Return the buckets of a lane's jobs, by bucket; none: nothing blocks them.

        A budget is used at a cost of 1 by retries, and of 0 by first attempts.

        Args:
            kind: the lane's.
            tenant: the lane's; jobs without one are under no tenant's rule.
            values: what they count by, as in ``quota_values``.
            again: they are retries (`lanes.is_again`).
        """
        found = []
        for need in self.needs_of(kind):
            quota = self.quotas[need.quota]
            value = ""
            if quota.per == TENANT:
                value = tenant or ""
            elif (path := quota.path) is not None:
                value = values.get(path, "")
            bucket = bucket_id(quota.name, value)
            found.append(Use(bucket, quota.name, value, need.cost))
        if self.budgets:
            needed = [(use.quota, use.value) for use in found]
            for name, value in names_of(self.budgets, kind, needed):
                found.append(Use(bucket_id(name, value), name, value, int(again)))
        if tenant is not None and self._holds_back(tenant):
            found.append(Use(bucket_id(TENANT, tenant), TENANT, tenant, 1))
        return tuple(sorted(found))

    def limit(self, quota: str, value: str) -> Limit:
        """Return what holds for a bucket; nothing, if nobody publishes the quota."""
        numbers: Quota | Tenant | None
        if quota == TENANT:
            numbers, pause = self._tenant(value), self._closed.get((TENANT, value))
        else:
            numbers, pause = self.quotas.get(quota), self._closed.get(("quota", quota))
        rate = numbers.rate if numbers else None
        return Limit(
            concurrency=numbers.concurrency if numbers else None,
            pace=pace(rate, numbers.burst) if numbers and rate else None,
            closed_until_ms=(pause.until_ms or FOREVER_MS) if pause else None,
            reason=_reason(pause) if pause else "",
            breaker=numbers.breaker if isinstance(numbers, Quota) else None,
            budget=self.budgets.get(quota),
        )

    def _holds_back(self, tenant: str) -> bool:
        return self._limits_tenants or tenant in self._paused_tenants

    def _tenant(self, name: str) -> Tenant:
        """Return what holds for a tenant; each number is its own, or everybody's."""
        own = self.tenants.get(name) or Tenant(name=name)
        others = self.tenants.get(EVERYBODY_ELSE)
        return own if others is None else filled(own, others)


def rules(
    published: Iterable[Published],
    overrides: Iterable[Override] = (),
    tenants: Iterable[TenantOverride] = (),
    pauses: Iterable[Pause] = (),
    *,
    now_ms: int,
    version: int = 0,
) -> Rules:
    """Compile what is in force.

    Where runs differ, the stricter number holds: the smaller cap, the slower rate, the
    smaller burst. A kind needs what any run says it needs, at the highest cost. What a
    quota counts by, its scope, its times, its breaker, budgets, and what is said of
    pools and kinds are as the newest version of the application has them. What an
    operator has set takes precedence over all of them.

    Args:
        published: by living runs.
        overrides: of quotas; those that have ended are left out.
        tenants: what was set for tenants.
        pauses: those that have ended, and those of kinds and pools, are left out.
        now_ms: the store's time.
        version: the store's ``limits_version``.
    """
    runs = sorted(published, key=lambda run: (run.app_since_ms, run.run_id))
    differing: list[str] = []
    quotas: dict[str, tuple[str, Quota]] = {}
    named: dict[str, tuple[str, Tenant]] = {}
    needs: dict[str, dict[str, int]] = {}
    for run in runs:
        for quota in run.limits.quotas:
            stricter_quota(quotas, run.label, quota, differing)
        for tenant in run.limits.tenants:
            stricter_tenant(named, run.label, tenant, differing)
        former = {
            alias: run.needs.get(kind, ()) for alias, kind in run.limits.aliases.items()
        }
        for kind, wanted in (*former.items(), *run.needs.items()):
            of_kind = needs.setdefault(kind, {})
            for need in wanted:
                of_kind[need.quota] = max(need.cost, of_kind.get(need.quota, 0))
    said = [(run.label, run.limits) for run in runs]
    in_force = {name: quota for name, (_, quota) in quotas.items()}
    ends: list[int] = []
    for override in overrides:
        if override.until_ms is not None:
            if override.until_ms <= now_ms:
                continue
            ends.append(override.until_ms)
        _set(in_force, needs, override)
    who_rules = {name: tenant for name, (_, tenant) in named.items()}
    for over in tenants:
        name = over.tenant.name
        who_rules[name] = filled(over.tenant, who_rules.get(name))
    closed = [
        one
        for one in pauses
        if one.what in (TENANT, "quota")
        and (one.until_ms is None or one.until_ms > now_ms)
    ]
    ends += [one.until_ms for one in closed if one.until_ms is not None]
    return Rules(
        version=version,
        until_ms=min(ends, default=None),
        quotas=in_force,
        needs=_in_store(in_force, needs),
        tenants=who_rules,
        budgets=newest_budgets((run.limits for run in runs), in_force),
        pools=newest_pools(said, differing),
        kinds=newest_kinds(said, differing),
        pauses=closed,
        differing=tuple(differing),
    )


def _set(
    quotas: dict[str, Quota], needs: dict[str, dict[str, int]], override: Override
) -> None:
    """Apply what an operator has set."""
    name = override.quota
    if name.startswith(KIND_PREFIX):  # a kind's own cap, declared or not
        needs.setdefault(name.removeprefix(KIND_PREFIX), {}).setdefault(name, 1)
    given = {
        option: value
        for option in ("rate", "burst", "concurrency")
        if (value := getattr(override, option)) is not None
    }
    quota = quotas.get(name) or Quota(name=name)
    quotas[name] = msgspec.structs.replace(quota, **given, source="set")


def _in_store(
    quotas: Mapping[str, Quota], needs: Mapping[str, Mapping[str, int]]
) -> dict[str, tuple[Need, ...]]:
    """Return the needs that the store decides: not those of what one host counts."""
    found = {}
    for kind, wanted in needs.items():
        known = {
            name: cost
            for name, cost in sorted(wanted.items())
            if name in quotas and not quotas[name].host_only
        }
        if known:
            found[kind] = tuple(Need(name, cost) for name, cost in known.items())
    return found


def filled(tenant: Tenant, below: Tenant | None) -> Tenant:
    """Return a tenant's rule, with what it does not say taken from another one.

    Args:
        tenant: the rule.
        below: what was set or published before, or everybody's.
    """
    if below is None:
        return tenant
    given = {
        option: getattr(below, option)
        for option in ("concurrency", "weight")
        if getattr(tenant, option) is None
    }
    if tenant.rate is None:  # a burst belongs to its rate
        given["rate"] = below.rate
        if tenant.burst is None:
            given["burst"] = below.burst
    return msgspec.structs.replace(tenant, **given)


def _reason(pause: Pause) -> str:
    return f"{pause.what} {pause.name} is paused" + (
        f": {pause.note}" if pause.note else ""
    )
