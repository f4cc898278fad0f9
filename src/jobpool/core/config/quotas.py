"""Quotas and tenants as configured, and what a supervisor publishes of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.config.kinds import settings_of
from jobpool.core.config.layers import EVERY, nearest, quoted
from jobpool.core.config.options import BOUND
from jobpool.core.config.settings import Fair, QuotaSettings, Scope, Settings
from jobpool.core.config.sources import Sources, Value, field_of, named_tables
from jobpool.core.rules.quotas.definition import (
    Limits,
    Need,
    Quota,
    Tenant,
    check_need,
    check_numbers,
    check_quota,
    own_cap,
)
from jobpool.core.rules.quotas.gcra import DELAY_MIN_S, pace
from jobpool.core.rules.quotas.rules import filled
from jobpool.core.rules.quotas.shares import KindRule, PoolRule
from jobpool.core.units import show_duration
from jobpool.errors import ConfigError

_OVERRIDDEN = tuple(key for key in QuotaSettings.__struct_fields__ if key != "scope")
_NOTICED = 1.05
"""A rate that is slower by more than this is worth a remark."""


def quotas_of(
    sources: Sources, values: dict[str, Value]
) -> Iterator[tuple[str, QuotaSettings]]:
    """Yield the settings of quotas, and add their values to *values*.

    Raises:
        ConfigError: a value is wrong.
    """
    for name, found in named_tables(sources, "quotas", values):
        fields = {field_of(QuotaSettings, key): one for key, one in found.items()}
        yield name, QuotaSettings(**fields)


def tenants_of(
    sources: Sources, values: dict[str, Value]
) -> Iterator[tuple[str, Tenant]]:
    """Yield the rules of tenants, and add their values to *values*.

    Raises:
        ConfigError: a value is wrong, or a burst has no rate.
    """
    rules = {
        name: Tenant(name=name, **own)
        for name, found in named_tables(sources, "tenants", values)
        if (own := {key: one for key, one in found.items() if key not in BOUND})
    }
    for name, tenant in rules.items():
        what = f"[tenants.{quoted(name)}]"
        whole = filled(tenant, rules.get(EVERY))
        check_numbers(whole, what)
        if whole.burst is not None and whole.rate is None:
            raise ConfigError(
                f"{what}: burst {whole.burst} without a rate says nothing; add a rate, "
                'such as rate = "10/s", or leave burst out'
            )
        yield name, tenant


def published_limits(settings: Settings, report: AppReport) -> Limits:
    """Return what a supervisor publishes: as declared, and as configured above that.

    A quota may be in the configuration alone. A kind's own cap is published as a quota.

    Args:
        settings: the operator's.
        report: the application's declarations.

    Raises:
        ConfigError: two numbers contradict each other, or a kind's jobs could never
            begin.
    """
    quotas = {one.name: one for one in report.quotas}
    for name, own in settings.quotas.items():
        quotas[name] = _merged(quotas.get(name), name, own)
    for spec in report.handlers:
        for need in spec.needs:
            if need.quota not in quotas:
                raise ConfigError(
                    f"kind {spec.kind}: it needs quota {need.quota!r}, which neither "
                    f"the application nor the configuration has; "
                    f"{nearest(need.quota, quotas)}"
                )
            check_need(quotas[need.quota], need.cost, f"kind {spec.kind}")
    caps = (
        own_cap(spec.kind, most)[0]
        for spec in report.handlers
        if (most := _cap_of(settings, spec)) is not None
    )
    return Limits(
        quotas=(*quotas.values(), *caps),
        tenants=tuple(settings.tenants.values()),
        pools=tuple(_pool_rules(settings)),
        kinds=tuple(_kind_rules(settings, report)),
        retry_budget=settings.retry_budget,
        aliases={
            alias: spec.kind
            for spec in report.handlers
            if needs_of(settings, spec)
            for alias in spec.aliases
        },
    )


def needs_of(settings: Settings, spec: HandlerSpec) -> tuple[Need, ...]:
    """Return what a kind's jobs take when they begin, their own cap included."""
    most = _cap_of(settings, spec)
    own = () if most is None else (own_cap(spec.kind, most)[1],)
    return (*spec.needs, *own)


def _pool_rules(settings: Settings) -> Iterator[PoolRule]:
    for pool in settings.pools:
        fair = "" if pool.fair is Fair.NONE else pool.fair.value
        rule = PoolRule(name=pool.name, fair=fair, aging_s=pool.aging_s)
        if not rule.is_plain:
            yield rule


def _kind_rules(settings: Settings, report: AppReport) -> Iterator[KindRule]:
    for spec in report.handlers:
        own = settings_of(settings, spec)
        budget = own.retry_budget or spec.retry_budget
        if own.weight is None and budget is None:
            continue
        weight = 1.0 if own.weight is None else own.weight
        for name in (spec.kind, *spec.aliases):
            yield KindRule(kind=name, weight=weight, retry_budget=budget)


def remarks(settings: Settings, report: AppReport) -> Iterator[str]:
    """Yield what is allowed, but surely not what was meant.

    Args:
        settings: the operator's.
        report: the application's declarations.
    """
    declared = {one.name for one in report.quotas}
    for name in settings.quotas:
        if name not in declared and not settings.kinds_shared:
            yield (
                f"[quotas.{quoted(name)}]: the application declares no quota of this "
                f"name, so nothing uses it; {nearest(name, declared)}"
            )
    for quota in published_limits(settings, report).quotas:
        if quota.rate is None:
            continue
        wanted_us = 1_000_000 / quota.rate.per_second
        given_us = pace(quota.rate, quota.burst).interval_us
        if given_us > _NOTICED * wanted_us:
            enough = math.ceil(1 + quota.rate.per_second * DELAY_MIN_S)
            yield (
                f"quota {quota.name}: with a burst of {quota.burst_in_force}, one job "
                f"begins every {show_duration(given_us / 1e6)} instead of every "
                f"{show_duration(wanted_us / 1e6)}, so that no two of them ever begin "
                f"too close together; a burst of {enough} has the whole rate"
            )


def _merged(declared: Quota | None, name: str, own: QuotaSettings) -> Quota:
    """Return a quota with what is configured in place of what is declared."""
    given: dict[str, Any] = {
        key: value for key in _OVERRIDDEN if (value := getattr(own, key)) is not None
    }
    if own.scope is not None:
        given["host_only"] = own.scope is Scope.HOST
    if declared is None and own.rate is None:
        given.pop("burst", None)  # of a rate that another application declares
    quota = declared or Quota(name=name)
    source = "configuration" if declared is None else "code, configuration"
    quota = msgspec.structs.replace(quota, **given, source=source)
    return check_quota(quota, f"[quotas.{quoted(name)}]")


def _cap_of(settings: Settings, spec: HandlerSpec) -> int | None:
    configured = settings_of(settings, spec).concurrency
    return spec.concurrency if configured is None else configured
