"""The effective limits of each kind, and the origin of each. Pure.

The rule itself is `limits.resolve`; this module only traces its answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import INTERNAL_PREFIX, HandlerSpec
from jobpool.core.config.kinds import name_in, settings_of
from jobpool.core.config.load import Configuration
from jobpool.core.config.options import BOUND, KIND
from jobpool.core.config.settings import KindSettings
from jobpool.core.config.sources import field_of
from jobpool.core.rules.limits import Effective, Limits, resolve

_DECORATOR = "decorator, or its default"
_POOLS_OWN = ("breaker_after", "keep_output")
"""A decorator does not have them."""
_WEIGHT = "weight"
_OVER_ALL_HOSTS = ("concurrency", "retry_budget")
"""No pool has one, either."""
_MAXIMA = {"timeout": "timeout_max", "memory": "memory_max"}


class KindLimit(msgspec.Struct, frozen=True, kw_only=True):
    """One limit or budget of one kind, for jobs without options of their own."""

    kind: str
    pool: str
    name: str
    value: Any
    shown: str
    origin: str


def kind_limits(configuration: Configuration, report: AppReport) -> Iterator[KindLimit]:
    """Yield the limits of every kind whose pool this supervisor runs.

    Args:
        configuration: the operator's.
        report: the application's declarations.
    """
    pools = {pool.name: pool for pool in configuration.settings.pools}
    for spec in sorted(report.handlers, key=lambda spec: spec.kind):
        if spec.pool in pools and not spec.kind.startswith(INTERNAL_PREFIX):
            yield from _limits_of(configuration, spec)


def _limits_of(configuration: Configuration, spec: HandlerSpec) -> Iterator[KindLimit]:
    settings = configuration.settings
    pool = next(pool for pool in settings.pools if pool.name == spec.pool)
    configured = settings_of(settings, spec)
    effective = resolve(
        configured=configured.limits,
        job=Limits(),
        declared=spec.limits,
        pool=pool.limits,
    )
    for key, option in KIND.items():
        if key in BOUND or key == _WEIGHT:
            continue  # of all its jobs, not of one
        field = field_of(KindSettings, key) if key.startswith("max_") else None
        if key in _POOLS_OWN:
            own = getattr(configured, key)
            value = getattr(pool, key) if own is None else own
        elif key in _OVER_ALL_HOSTS:
            chosen = getattr(configured, key)
            value = getattr(spec, key) if chosen is None else chosen
        elif field is not None:
            chosen = getattr(configured, field)
            value = getattr(spec.policy, field) if chosen is None else chosen
        else:
            value = getattr(effective, field_of(Effective, key))
        if value is not None:
            yield KindLimit(
                kind=spec.kind,
                pool=spec.pool,
                name=key,
                value=value,
                shown=option.show(value),
                origin=_origin(configuration, spec, key, value),
            )


def _origin(
    configuration: Configuration, spec: HandlerSpec, key: str, value: Any
) -> str:
    values = configuration.values
    name = name_in(configuration.settings, spec)
    setting = values.get(f'kinds."{name}".{key}')
    if key.startswith("max_"):
        return setting.origin if setting else _DECORATOR
    pool_value = values.get(f"pools.{spec.pool}.{key}")
    if key in _POOLS_OWN and pool_value is not None:
        return setting.origin if setting else pool_value.origin
    if key in ("memory_growth", *_OVER_ALL_HOSTS):  # no pool has one
        return setting.origin if setting else "decorator"
    declared = getattr(spec.limits, field_of(Limits, key))
    pool = values[f"pools.{spec.pool}.{key}"]
    if setting:
        asked, origin = setting.value, setting.origin
    elif declared is not None:
        asked, origin = declared, "decorator"
    else:
        asked, origin = pool.value, pool.origin
    if asked != value and key in _MAXIMA:
        ceiling = values[f"pools.{spec.pool}.{_MAXIMA[key]}"]
        return f"{ceiling.origin} ({origin} asked for {KIND[key].show(asked)})"
    return origin
