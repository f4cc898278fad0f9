"""Where two runs publish a quota differently: the stricter number, and who differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from jobpool.core.rules.quotas.budget import RETRIES, RetryBudget, of_kind, of_quota
from jobpool.core.rules.quotas.definition import Limits, Quota, Tenant
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.shares import KindRule, PoolRule
from jobpool.core.units import show_duration

_Numbers = TypeVar("_Numbers", Quota, Tenant)
_Rule = TypeVar("_Rule", PoolRule, KindRule)


def stricter_quota(
    merged: dict[str, tuple[str, Quota]],
    label: str,
    quota: Quota,
    differing: list[str],
) -> None:
    """Merge one more run's definition, which is of a version no older than the others.

    Args:
        merged: by name: who published it last, and the definition; is changed.
        label: who publishes this one.
        quota: the definition.
        differing: gets a sentence if it is not as the other one.
    """
    before = merged.get(quota.name)
    if before is None:
        merged[quota.name] = label, quota
        return
    other, known = before
    if shown(known) != shown(quota):
        differing.append(
            f"quota {quota.name}: {other} says {shown(known)}, {label} says "
            f"{shown(quota)}; of each the stricter number holds"
            + (", and what the newer application counts by" * (known.per != quota.per))
            + (", and the newer breaker" * (known.breaker != quota.breaker))
            + (", and the newer budget" * (known.retry_budget != quota.retry_budget))
        )
    merged[quota.name] = label, _stricter(known, quota)


def stricter_tenant(
    merged: dict[str, tuple[str, Tenant]],
    label: str,
    tenant: Tenant,
    differing: list[str],
) -> None:
    """Merge one more run's rule of a tenant, as `stricter_quota` does."""
    before = merged.get(tenant.name)
    if before is None:
        merged[tenant.name] = label, tenant
        return
    other, known = before
    if shown(known) != shown(tenant):
        differing.append(
            f"tenant {tenant.name}: {other} says {shown(known)}, {label} says "
            f"{shown(tenant)}; of each the stricter number holds"
        )
    merged[tenant.name] = label, _stricter(known, tenant)


def newest_budgets(
    limits: Iterable[Limits], quotas: Mapping[str, Quota]
) -> dict[str, RetryBudget]:
    """Return the retry budgets, by the quota whose buckets they are.

    Args:
        limits: what runs publish, the newest version last.
        quotas: by name, as they are in force.
    """
    found: dict[str, RetryBudget] = {}
    for one in limits:
        if one.retry_budget is not None:
            found[RETRIES] = one.retry_budget
        for rule in one.kinds:
            if rule.retry_budget is not None:
                found[of_kind(rule.kind)] = rule.retry_budget
    for name, quota in quotas.items():
        if quota.retry_budget is not None and not quota.host_only:
            found[of_quota(name)] = quota.retry_budget
    return found


def newest_pools(
    said: Iterable[tuple[str, Limits]], differing: list[str]
) -> dict[str, PoolRule]:
    """Return what holds for pools that are not as all others: the newest word.

    Args:
        said: who publishes what, the newest version of the application last.
        differing: gets a sentence for each that two say differently.
    """
    rules = [(who, one.name, one) for who, limits in said for one in limits.pools]
    return {
        name: one
        for name, one in _newest("pool", rules, differing).items()
        if not one.is_plain
    }


def newest_kinds(
    said: Iterable[tuple[str, Limits]], differing: list[str]
) -> dict[str, KindRule]:
    """Return what holds for kinds, as `newest_pools` does."""
    rules = [(who, one.kind, one) for who, limits in said for one in limits.kinds]
    return _newest("kind", rules, differing)


def _newest(
    what: str, rules: Iterable[tuple[str, str, _Rule]], differing: list[str]
) -> dict[str, _Rule]:
    merged: dict[str, tuple[str, _Rule]] = {}
    for label, name, rule in rules:
        other, known = merged.get(name, (label, rule))
        if known != rule:
            differing.append(
                f"{what} {name}: {other} says {rule_shown(known)}, {label} says "
                f"{rule_shown(rule)}; the newer application's word holds"
            )
        merged[name] = label, rule
    return {name: rule for name, (_, rule) in merged.items()}


def rule_shown(rule: PoolRule | KindRule) -> str:
    """Return a rule as one reads it: ``fair by tenant, rises each 1min``."""
    if isinstance(rule, KindRule):
        return f"weight {rule.weight:g}"
    parts = [f"fair by {rule.fair}"] if rule.fair else []
    if rule.aging_s is not None:
        parts.append(f"a priority higher every {show_duration(rule.aging_s)}")
    return ", ".join(parts) or "the plain order"


def shown(numbers: Quota | Tenant) -> str:
    """Return a definition as one reads it: ``10/s, burst 20, at most 8 at once``."""
    parts = []
    if numbers.rate is not None:
        parts.append(f"{numbers.rate}, burst {_burst(numbers)}")
    if numbers.concurrency is not None:
        parts.append(f"at most {numbers.concurrency} at once")
    if isinstance(numbers, Quota):
        if numbers.per is not None:
            parts.append(f"per {numbers.per}")
        if numbers.host_only:
            parts.append("on each host")
        if (rule := numbers.breaker) is not None:
            parts.append(
                f"breaker at {rule.failures:.0%} of {rule.requests} in "
                f"{show_duration(rule.window_s)} for {show_duration(rule.pause_s)}"
            )
        if (budget := numbers.retry_budget) is not None:
            parts.append(f"retries {budget.ratio:.0%} or {budget.floor}")
    elif numbers.weight is not None:
        parts.append(f"weight {numbers.weight:g}")
    return ", ".join(parts) or "nothing"


def _stricter(known: _Numbers, newer: _Numbers) -> _Numbers:
    """Return the newer definition with the stricter of both numbers."""
    caps = [one.concurrency for one in (known, newer) if one.concurrency is not None]
    paced = [(one.rate, _burst(one)) for one in (known, newer) if one.rate is not None]
    rate = min((rate for rate, _ in paced), key=_speed, default=None)
    return msgspec.structs.replace(
        newer,
        concurrency=min(caps, default=None),
        rate=rate,
        burst=min((burst for _, burst in paced), default=None),
    )


def _burst(numbers: Quota | Tenant) -> int:
    if numbers.burst is not None:
        return numbers.burst
    return numbers.rate.default_burst if numbers.rate else 1


def _speed(rate: Rate) -> float:
    return rate.per_second
