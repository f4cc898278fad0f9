"""What is said of quotas: their numbers, and why a job has no permit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobpool.cli.output import ago
from jobpool.core.event_lines import iso_time
from jobpool.core.rules.quotas.breaker import show_breaker
from jobpool.core.rules.quotas.budget import RETRIES, show_budget
from jobpool.core.rules.quotas.definition import KIND_PREFIX, TENANT, Quota, Tenant
from jobpool.store.records.quotas import QuotaWait

_HOLDERS_MAX = 10
"""As of `QuotaWait`: there may be more."""
_SPANS = ((1, "second"), (60, "minute"), (3600, "hour"), (86400, "day"))
"""In seconds; a rate is told in two of them."""
_CLOCK_FROM_MS = 60_000
"""What opens later than in a minute is shown with its time."""


def numbers_words(numbers: Quota | Tenant) -> str:
    """Return a cap, a rate and a burst in words: ``8 at once, 10/s with burst 20``.

    And the breaker and the retry budget of a quota.
    """
    parts = [] if numbers.concurrency is None else [f"{numbers.concurrency:,} at once"]
    if numbers.rate is not None:
        burst = numbers.rate.default_burst if numbers.burst is None else numbers.burst
        parts.append(f"{numbers.rate} with burst {burst:,}")
    if isinstance(numbers, Quota):
        if (rule := numbers.breaker) is not None:
            parts.append(f"breaker at {show_breaker(rule)}")
        if (budget := numbers.retry_budget) is not None:
            parts.append(f"retries {show_budget(budget)}")
    return ", ".join(parts)


def costs_words(costs: Mapping[str, int]) -> str:
    """Return which kinds need a quota, and what a job of each takes of it."""
    return ", ".join(
        kind if cost == 1 else f"{kind} (cost {cost})" for kind, cost in costs.items()
    )


def named(quota: str, value: str, per: str | None = None) -> str:
    """Name a bucket as people do: ``quota vendor for 17``, ``tenant acme``.

    Args:
        quota: its quota's name.
        value: what it is the bucket of.
        per: what the quota counts by, if it is known.
    """
    if quota == TENANT:
        return f"the rule of tenant {value}"
    if quota == RETRIES or quota.startswith(f"{RETRIES}:"):
        _, _, of = quota.partition(":")
        whose = of.replace(":", " ", 1) or "the fleet"
        return f"the retry budget of {whose}{f' for {value}' if value else ''}"
    if quota.startswith(KIND_PREFIX):
        return f"the own cap of kind {quota.removeprefix(KIND_PREFIX)}"
    if per is None and not value:
        return f"quota {quota}"
    return f"quota {quota} for {per + '=' if per else ''}{value or 'no value'}"


def opens_words(at_ms: int | None, now_ms: int) -> str:
    """Return when there may be a permit; "": nobody can know."""
    if at_ms is None:
        return ""
    if at_ms <= now_ms:
        return "next permit now"
    when = f"next permit {ago(at_ms, now_ms)}"
    later = at_ms - now_ms >= _CLOCK_FROM_MS
    return f"{when}, at {iso_time(at_ms)}" if later else when


def wait_words(wait: QuotaWait, now_ms: int) -> str:
    """Return what keeps a job from having a permit, and who has them or until when."""
    holders = ", ".join(map(str, wait.holders))
    more = wait.used - len(wait.holders)
    if len(wait.holders) >= _HOLDERS_MAX and more > 0:
        holders += f" and {more:,} more"
    noun = "job" if len(wait.holders) == 1 else "jobs"
    parts = (
        wait.why,
        opens_words(wait.opens_at_ms, now_ms)
        or (f"held by {noun} {holders}" if holders else ""),
    )
    what = named(wait.quota, wait.value).removeprefix("quota ")
    return f"{what}: {'; '.join(filter(None, parts))}"


def wait_object(wait: QuotaWait) -> dict[str, Any]:
    """Return the same for ``--json``."""
    return {
        "quota": wait.quota,
        "value": wait.value,
        "why": wait.why,
        "used": wait.used,
        "concurrency": wait.cap,
        "held_by": list(wait.holders),
        "opens_at": iso_time(wait.opens_at_ms),
    }


def window_words(quota: Quota) -> str:
    """Return what a rate and its burst allow within two spans that suit the rate."""
    rate, burst = quota.rate, quota.burst_in_force or 0
    if rate is None:
        return ""
    first = sum(rate.per_s >= span_s for span_s, _ in _SPANS[1:-1])
    return "at most " + ", ".join(
        f"{int(rate.per_second * span_s + burst):,} within any {name}"
        for span_s, name in _SPANS[first : first + 2]
    )
