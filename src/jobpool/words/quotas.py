"""What is said of quotas: their numbers, and why a job has no permit. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobpool.core.event_lines import iso_time
from jobpool.core.rules.quotas.breaker import show_breaker
from jobpool.core.rules.quotas.budget import RETRIES, show_budget
from jobpool.core.rules.quotas.definition import KIND_PREFIX, TENANT, Quota, Tenant
from jobpool.core.rules.quotas.rules import Override
from jobpool.core.units import show_duration
from jobpool.operations.quotas import free
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.quotas import BucketRow, QuotaRow, QuotaWait, TenantRow
from jobpool.words.figures import ago, counted
from jobpool.words.pauses import pause_words, paused_words

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


def free_of(row: QuotaRow) -> int | None:
    """Return how many permits can be had now of a quota with one bucket."""
    quota = row.quota
    if quota is None or quota.host_only or quota.per is not None:
        return None
    if row.bucket is not None:
        return free(row.bucket)
    known = (quota.concurrency, quota.burst_in_force)
    return min((number for number in known if number is not None), default=None)


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


def tenant_origin(row: TenantRow, now_ms: int) -> str | None:
    """Return who says a tenant's rule."""
    if row.tenant is None:
        return None
    if not row.is_set:
        return "configuration"
    by = f" by {row.who}" if row.who else ""
    return " ".join(filter(None, (f"set{by}", ago(row.updated_at_ms, now_ms))))
