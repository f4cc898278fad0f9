"""What is in force of quotas, merged here from what runs and operators have said.

It knows the manual's rules, and nothing of `core.rules.quotas.rules`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from jobpool.core.rules.quotas.definition import Quota, Tenant
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.shares import PoolRule
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.tables.rows import Row

OTHERS = "*"
OWN = "kind:"


class Numbers(NamedTuple):
    """What holds for a bucket."""

    cap: int | None
    rate: Rate | None
    burst: int | None
    """None only without a rate: these scenarios say both."""


class Needed(NamedTuple):
    """What a job takes of a bucket."""

    quota: str
    value: str
    cost: int
    numbers: Numbers
    closed: bool

    @property
    def bucket(self) -> str:
        """The bucket's name here."""
        return f"{self.quota}={self.value}"


class InForce:
    """The rules at one moment."""

    def __init__(self, database: MemoryDatabase, now_ms: int) -> None:
        open_runs = [run for run in database.runs.values() if run.ended_at_ms is None]
        open_runs.sort(key=lambda run: (database.app_since.get(run.id, 0), run.id))
        said: defaultdict[str, list[Quota]] = defaultdict(list)
        tenants: defaultdict[str, list[Tenant]] = defaultdict(list)
        for run in open_runs:
            for quota in run.limits.quotas:
                said[quota.name].append(quota)
            for tenant in run.limits.tenants:
                tenants[tenant.name].append(tenant)
        budgets = [run.limits.retry_budget for run in open_runs]
        self.retry_budget = next((one for one in reversed(budgets) if one), None)
        self.newest = {name: quotas[-1] for name, quotas in said.items()}
        self._numbers = {name: _stricter(quotas) for name, quotas in said.items()}
        self._tenants = {name: _stricter(rules) for name, rules in tenants.items()}
        self.pools = {rule.name: rule for run in open_runs for rule in run.limits.pools}
        self._weights = {name: rules[-1].weight for name, rules in tenants.items()}
        self._needs: defaultdict[str, dict[str, int]] = defaultdict(dict)
        here = {run.id for run in open_runs}
        for (kind, run_id), record in database.kinds.items():
            for need in record.needs if run_id in here else ():
                most = self._needs[kind].get(need.quota, 0)
                self._needs[kind][need.quota] = max(most, need.cost)
        for one in database.overrides.values():
            if one.until_ms is not None and one.until_ms <= now_ms:
                continue
            if one.quota.startswith(OWN):
                self._needs[one.quota.removeprefix(OWN)].setdefault(one.quota, 1)
            before = self._numbers.get(one.quota, Numbers(None, None, None))
            self._numbers[one.quota] = Numbers(
                one.concurrency or before.cap,
                one.rate or before.rate,
                one.burst or before.burst,
            )
        for one in database.tenants.values():
            name = one.tenant.name
            below = self._tenants.get(name, Numbers(None, None, None))
            self._tenants[name] = _filled(_stricter([one.tenant]), below)
        self._closed = {
            (pause.what, pause.name)
            for pause in database.pauses.values()
            if pause.until_ms is None or pause.until_ms > now_ms
        }

    def needed(self, row: Row) -> Iterator[Needed]:
        """Yield what a job takes in the store when it is leased."""
        tenant, arguments = row.new.tenant, msgspec.json.decode(row.new.payload)
        for name, cost in self._needs[row.new.kind].items():
            quota = self.newest.get(name, Quota(name=name))
            if quota.host_only or name not in self._numbers:
                continue
            value = ""
            if quota.per == "tenant":
                value = tenant or ""
            elif quota.per is not None:
                value = arguments.get(quota.per.removeprefix("args."), "")
            yield self.of(name, value, cost)
        if tenant is not None and self._counts_tenants(tenant):
            yield self.of("tenant", tenant, 1)

    def who(self, rule: PoolRule, kind: str, tenant: str | None) -> str:
        """Return whose share of a fair pool a job's start is taken from."""
        return kind if rule.fair == "kind" else tenant or ""

    def weight(self, rule: PoolRule, row: Row) -> float:
        """Return the weight of that share: only tenants have any here."""
        if rule.fair == "kind" or row.new.tenant is None:
            return 1.0
        return self._weights.get(row.new.tenant) or 1.0

    def _counts_tenants(self, tenant: str) -> bool:
        """Say whether any rule makes jobs of a tenant count, from now on."""
        has_rule = any(one.cap or one.rate for one in self._tenants.values())
        return has_rule or ("tenant", tenant) in self._closed

    def of(self, name: str, value: str, cost: int) -> Needed:
        """Return what is to be had of a bucket, and how much of it this takes."""
        numbers = self._numbers.get(name, Numbers(None, None, None))
        closed = ("quota", name) in self._closed
        if name == "tenant":
            others = self._tenants.get(OTHERS, Numbers(None, None, None))
            numbers = _filled(self._tenants.get(value, others), others)
            closed = ("tenant", value) in self._closed
        cost = min(cost, numbers.cap or cost, numbers.burst or cost)
        return Needed(name, value, cost, numbers, closed)


def _stricter(said: list[Quota] | list[Tenant]) -> Numbers:
    """Return the smallest cap, the slowest rate and the smallest burst."""
    return Numbers(
        min((one.concurrency for one in said if one.concurrency), default=None),
        min(
            (one.rate for one in said if one.rate),
            key=lambda rate: rate.permits / rate.per_s,
            default=None,
        ),
        min((one.burst for one in said if one.burst), default=None),
    )


def _filled(numbers: Numbers, below: Numbers) -> Numbers:
    """Return one's own numbers, and what they do not say from below."""
    return Numbers(
        numbers.cap or below.cap,
        numbers.rate or below.rate,
        numbers.burst if numbers.rate else below.burst,
    )
