"""Quotas, buckets and tenants as tables and ``--json`` show them. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from jobpool.core.event_lines import iso_time
from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.quotas.definition import Quota, Tenant
from jobpool.core.rules.quotas.rules import EVERYBODY_ELSE, Override
from jobpool.operations.quotas import free
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.quotas import BucketRow, QuotaRow, TenantRow
from jobpool.words.pauses import paused_words
from jobpool.words.quotas import (
    bucket_state,
    free_of,
    origin,
    state_words,
    tenant_origin,
)

COLUMNS = (
    *("NAME", "PER", "CAP", "RATE", "BURST", "USED", "FREE", "WAITING", "FROM"),
    "STATE",
)
RIGHT = ("CAP", "RATE", "BURST", "USED", "FREE", "WAITING")
SPARE = ("BURST", "FROM", "PER", "RATE")
BUCKET_COLUMNS = ("VALUE", "USED", "CAP", "FREE", "WAITING", "STATE")
BUCKET_RIGHT = ("USED", "CAP", "FREE", "WAITING")
TENANT_COLUMNS = (
    *("TENANT", "CAP", "RATE", "BURST", "USED", "WAITING", "FROM"),
    "STATE",
)
TENANT_RIGHT = ("CAP", "RATE", "BURST", "USED", "WAITING")


def cells(row: QuotaRow, now_ms: int) -> tuple[Any, ...]:
    """Return a quota's line in the list."""
    quota = row.quota
    cap, rate, burst = _numbers(quota)
    is_counted = quota is not None and not quota.host_only
    return (
        row.name,
        None if quota is None else quota.per,
        cap,
        rate,
        burst,
        row.used if is_counted and cap is not None else None,
        free_of(row),
        row.waiting or None,
        origin(row, now_ms),
        state_words(row, now_ms),
    )


def _numbers(rule: Quota | Tenant | None) -> tuple[Any, Any, Any]:
    """Return cap, rate and burst for a table."""
    if rule is None:
        return None, None, None
    rate = rule.rate
    burst = None if rate is None else rule.burst or rate.default_burst
    return rule.concurrency, None if rate is None else str(rate), burst


def bucket_cells(bucket: BucketRow, now_ms: int) -> tuple[Any, ...]:
    """Return a bucket's line in a table."""
    return (
        bucket.value or None,
        bucket.used if bucket.cap is not None else None,
        bucket.cap,
        free(bucket),
        bucket.waiting or None,
        bucket_state(bucket, now_ms),
    )


def tenant_cells(row: TenantRow, now_ms: int) -> tuple[Any, ...]:
    """Return a tenant's line in the list."""
    state = "open"
    if row.paused is not None:
        state = paused_words(row.paused, now_ms)
    is_others = row.name == EVERYBODY_ELSE
    return (
        row.name,
        *_numbers(row.tenant),
        None if is_others else row.used,
        row.waiting or None,
        tenant_origin(row, now_ms),
        "for each tenant without its own" if is_others else state,
    )


def quota_object(row: QuotaRow) -> dict[str, Any]:
    """Return a quota for ``--json``."""
    quota, override = row.quota, row.override
    return {
        "quota": row.name,
        "published": quota is not None,
        **_rule_object(quota),
        "per": None if quota is None else quota.per,
        "scope": None if quota is None else ("host" if quota.host_only else "fleet"),
        "wait_s": None if quota is None else quota.wait_s,
        "throttle_max_s": None if quota is None else quota.throttle_max_s,
        "breaker": None if quota is None else _plain(quota.breaker),
        "retry_budget": _plain(row.budget or (quota.retry_budget if quota else None)),
        "from": None if quota is None else quota.source,
        "set": None
        if override is None
        else {
            **_rule_object(override),
            "until": iso_time(override.until_ms),
            "by": override.who,
            "note": override.note,
        },
        "differing": row.differing,
        "kinds": list(row.kinds),
        "used": row.used,
        "free": free_of(row),
        "waiting": row.waiting,
        "closed_buckets": row.blocked,
        **_pause_object(row.paused),
    }


def _plain(rule: BreakerRule | RetryBudget | None) -> dict[str, Any] | None:
    if isinstance(rule, RetryBudget):
        return {"ratio": rule.ratio, "floor": str(rule.floor)}
    return None if rule is None else msgspec.structs.asdict(rule)


def bucket_object(bucket: BucketRow) -> dict[str, Any]:
    """Return a bucket for ``--json``."""
    return {
        "value": bucket.value,
        "used": bucket.used,
        "concurrency": bucket.cap,
        "free": free(bucket),
        "waiting": bucket.waiting,
        "opens_at": iso_time(bucket.opens_at_ms),
        "blocked_until": iso_time(bucket.blocked_until_ms),
        "reason": bucket.reason,
    }


def tenant_object(row: TenantRow) -> dict[str, Any]:
    """Return a tenant for ``--json``."""
    return {
        "tenant": row.name,
        **_rule_object(row.tenant),
        "set": row.is_set,
        "set_by": row.who,
        "set_at": iso_time(row.updated_at_ms),
        "used": row.used,
        "waiting": row.waiting,
        **_pause_object(row.paused),
    }


def _rule_object(rule: Quota | Tenant | Override | None) -> dict[str, Any]:
    if rule is None:
        return dict.fromkeys(("concurrency", "rate", "burst"))
    return {
        "concurrency": rule.concurrency,
        "rate": None if rule.rate is None else str(rule.rate),
        "burst": rule.burst,
    }


def _pause_object(pause: PauseRow | None) -> dict[str, Any]:
    return {
        "paused": pause is not None,
        "paused_until": None if pause is None else iso_time(pause.until_ms),
        "paused_by": None if pause is None else pause.who,
        "note": None if pause is None else pause.note,
    }
