"""Quotas, buckets and tenants as tables and ``--json`` show them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from jobpool.cli.jobs.quota_words import (
    costs_words,
    numbers_words,
    opens_words,
    window_words,
)
from jobpool.cli.output import ago, counted, pause_words
from jobpool.core.event_lines import iso_time
from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.budget import RetryBudget, show_budget
from jobpool.core.rules.quotas.definition import Quota, Tenant
from jobpool.core.rules.quotas.rules import EVERYBODY_ELSE, Override
from jobpool.core.units import show_duration
from jobpool.operations.quotas import free
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.quotas import BucketRow, QuotaRow, TenantRow

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
        _free(row),
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


def _free(row: QuotaRow) -> int | None:
    """Return how many permits can be had now of a quota with one bucket."""
    quota = row.quota
    if quota is None or quota.host_only or quota.per is not None:
        return None
    if row.bucket is not None:
        return free(row.bucket)
    known = (quota.concurrency, quota.burst_in_force)
    return min((number for number in known if number is not None), default=None)


def origin(row: QuotaRow, now_ms: int) -> str | None:
    """Return who says a quota's numbers, shortly, and until when."""
    if row.override is None:
        return None if row.quota is None else row.quota.source
    ends = ago(row.override.until_ms, now_ms)
    return f"set, ends {ends}" if ends else "set"


def state_words(row: QuotaRow, now_ms: int) -> str:
    """Return what a quota does at present to the jobs that need it."""
    if row.paused is not None:
        return paused_words(row.paused, now_ms)
    quota = row.quota or Quota(name=row.name)
    if row.quota is None and row.budget is None:
        return "nobody publishes it"
    if quota.host_only:
        return "each host counts its own"
    if quota.per is not None or (row.blocked and row.bucket is None):
        return f"{counted(row.blocked, 'bucket')} closed" if row.blocked else "open"
    return "open" if row.bucket is None else bucket_state(row.bucket, now_ms)


def bucket_state(bucket: BucketRow, now_ms: int) -> str:
    """Return why a bucket has no permit, and when it has one."""
    if bucket.reason is None:
        return "open"
    opens = opens_words(bucket.opens_at_ms, now_ms)
    return f"{opens}: {bucket.reason}" if opens else bucket.reason


def paused_words(pause: PauseRow, now_ms: int) -> str:
    """Return how long something is paused still, and why; shortly."""
    until = "" if pause.until_ms is None else f"ends {ago(pause.until_ms, now_ms)}"
    by = f"by {pause.who}" if pause.who else ""
    said = ", ".join(filter(None, ("PAUSED", until, by)))
    return f"{said}: {pause.note}" if pause.note else said


def facts(
    row: QuotaRow, costs: Mapping[str, int], now_ms: int
) -> Iterator[tuple[str, str]]:
    """Yield what is said of a quota: a name and a text.

    Args:
        row: the quota.
        costs: what one job of each kind takes of it.
        now_ms: the store's clock, or one that is near it.
    """
    quota = row.quota
    if row.budget is not None:
        yield "limits", f"retries {show_budget(row.budget)}"
    elif quota is None:
        yield "limits", "none: no supervisor that runs publishes it"
    else:
        yield "limits", numbers_words(quota) or "none: it lets all begin"
        yield "means", window_words(quota)
        yield "counts", _counts(quota)
        yield "permit()", f"waits {show_duration(quota.wait_s)} at most, then snoozes"
        most = show_duration(quota.throttle_max_s)
        yield "throttled", f"for {most} at most, whatever its service says"
        yield "from", "" if row.override else quota.source
    if row.override is not None:
        yield "set", override_words(row.override, now_ms)
    yield "differs", row.differing or ""
    if row.paused is not None:
        yield "paused", pause_words(row.paused, now_ms)
    kinds = costs_words({kind: costs.get(kind, 1) for kind in row.kinds})
    asks = "none: only permit() asks for it" if row.budget is None else ""
    yield "kinds", kinds or asks
    yield "waiting", counted(row.waiting, "job") if row.waiting else ""


def _counts(quota: Quota) -> str:
    if quota.host_only:
        return "on each host by itself"
    if quota.per is None:
        return "all jobs that need it together"
    return f"for each {quota.per} by itself"


def override_words(override: Override, now_ms: int) -> str:
    """Return what was set, by whom, until when, and why."""
    numbers = (
        f"{name} {value}"
        for name, value in (
            ("rate", override.rate),
            ("burst", override.burst),
            ("concurrency", override.concurrency),
        )
        if value is not None
    )
    how = PauseRow(
        what="quota",
        name=override.quota,
        until_ms=override.until_ms,
        who=override.who,
        note=override.note,
    )
    return ", ".join((*numbers, *filter(None, (pause_words(how, now_ms),))))


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


def tenant_origin(row: TenantRow, now_ms: int) -> str | None:
    """Return who says a tenant's rule."""
    if row.tenant is None:
        return None
    if not row.is_set:
        return "configuration"
    by = f" by {row.who}" if row.who else ""
    return " ".join(filter(None, (f"set{by}", ago(row.updated_at_ms, now_ms))))


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
        "free": _free(row),
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
