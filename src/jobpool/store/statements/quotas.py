"""What is shown of quotas: pure, from their rules and the state of their buckets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from jobpool.core.application.handler_spec import NAME
from jobpool.core.jobs.job import RequestReport
from jobpool.core.rules.quotas.allot import BucketState, cost_in, room_in
from jobpool.core.rules.quotas.breaker import BreakerChange, Change
from jobpool.core.rules.quotas.budget import WINDOW_S, allowed, opens_at_ms
from jobpool.core.rules.quotas.definition import (
    COUNT_MAX,
    KIND_PREFIX,
    Quota,
    Tenant,
    check_name,
    check_numbers,
)
from jobpool.core.rules.quotas.gcra import available, next_at_us
from jobpool.core.rules.quotas.lanes import bucket_id
from jobpool.core.rules.quotas.rules import FOREVER_MS, Override, Rules, Use
from jobpool.errors import ConfigError, UsageError
from jobpool.store.records.quotas import BucketRow, BudgetRow, QuotaWait, ServiceRow
from jobpool.store.statements.validation import TEXT_MAX, clean_text, is_tenant

HOLDERS_MAX = 10
_NUMBERS = ("rate", "burst", "concurrency")


class Shortage(NamedTuple):
    """Why a bucket has no permit now."""

    why: str
    opens_at_ms: int | None
    """When it may have one; None: once one is returned, or nobody knows."""


def shortage(bucket: BucketState, cost: int, now_ms: int) -> Shortage | None:
    """Return why a job cannot have its permits of a bucket now; None: it can."""
    limit = bucket.limit
    cost = cost_in(limit, cost)
    if (closed_ms := limit.closed_until_ms or 0) > now_ms:
        return Shortage(limit.reason, closed_ms if closed_ms < FOREVER_MS else None)
    if (found := _counted_out(bucket, cost, now_ms)) is not None:
        return found
    if bucket.block_until_ms > now_ms:
        return Shortage("its service has said to wait", bucket.block_until_ms)
    cap = limit.concurrency
    if cap is not None and bucket.in_use + cost > cap:
        needs = "" if cost == 1 else f", and it needs {cost}"
        return Shortage(f"{bucket.in_use} of {cap} in use{needs}", None)
    pace, now_us = limit.pace, now_ms * 1000
    if pace is not None and (free := available(pace, bucket.tat_us, now_us)) < cost:
        at_ms = -(-next_at_us(pace, bucket.tat_us, now_us, cost) // 1000)
        has = "no permit" if not free else f"{free} of {cost} permits"
        return Shortage(f"its rate has {has} left", at_ms)
    return None


def _counted_out(bucket: BucketState, cost: int, now_ms: int) -> Shortage | None:
    """Return how what was counted in a bucket holds a job back; None: it does not."""
    limit = bucket.limit
    if limit.breaker is not None:
        breaker = bucket.breaker.at(now_ms)
        if breaker.is_open:
            return Shortage("its service fails, and is left alone", breaker.until_ms)
        if breaker.probe is not None:
            why = f"its service fails; job {breaker.probe.job_id} tries it"
            return Shortage(why, breaker.until_ms or None)
    if limit.budget is not None and room_in(bucket, now_ms) < cost:
        _, retries = bucket.window.sums(now_ms, WINDOW_S)
        most = allowed(limit.budget, bucket.window, now_ms)
        why = f"{retries} of {most} retries a minute have begun"
        return Shortage(why, opens_at_ms(now_ms))
    return None


def counts_by_use(
    reports: Iterable[RequestReport],
) -> dict[Use, dict[int, tuple[int, int]]]:
    """Return how many requests were reported, and how many have failed.

    By bucket (as what one permit of it uses) and by token, in the order of buckets.
    """
    found: defaultdict[Use, dict[int, tuple[int, int]]] = defaultdict(dict)
    for one in reports:
        use = Use(bucket_id(one.quota, one.value), one.quota, one.value, 1)
        requests, failures = found[use].get(one.token, (0, 0))
        requests += max(0, min(one.requests, COUNT_MAX))
        failures += max(0, min(one.failures, one.requests, COUNT_MAX))
        found[use][one.token] = requests, failures
    return dict(sorted(found.items()))


def change_of(use: Use, change: Change) -> BreakerChange:
    """Return what is told of a breaker that a report has opened or closed."""
    breaker = change.breaker
    return BreakerChange(
        *(use.quota, use.value, breaker.state, change.requests, change.failures),
        until_ms=breaker.until_ms,
    )


def bucket_row(
    bucket: BucketState, quota: str, value: str, waiting: int, now_ms: int
) -> BucketRow:
    """Return what is shown of a bucket.

    Args:
        bucket: as it is.
        quota: its quota.
        value: what it is the bucket of.
        waiting: runnable jobs that wait for it.
        now_ms: the store's clock.
    """
    limit, found = bucket.limit, shortage(bucket, 1, now_ms)
    is_blocked = bucket.block_until_ms > now_ms
    free = None
    if limit.pace is not None:
        free = available(limit.pace, bucket.tat_us, now_ms * 1000)
    return BucketRow(
        quota=quota,
        value=value,
        used=0 if limit.concurrency is None else bucket.in_use,
        cap=limit.concurrency,
        free=free,
        waiting=waiting,
        opens_at_ms=None if found is None else found.opens_at_ms,
        blocked_until_ms=bucket.block_until_ms if is_blocked else None,
        reason=None if found is None else found.why,
        service=_service_row(bucket, now_ms),
        budget=_budget_row(bucket, now_ms),
    )


def _service_row(bucket: BucketState, now_ms: int) -> ServiceRow | None:
    if (rule := bucket.limit.breaker) is None:
        return None
    breaker = bucket.breaker.at(now_ms)
    requests, failures = breaker.window.sums(now_ms, rule.window_s)
    return ServiceRow(
        state=breaker.state,
        requests=requests,
        failures=failures,
        until_ms=breaker.until_ms if breaker.is_open else None,
        probe=None if breaker.probe is None else breaker.probe.job_id,
    )


def _budget_row(bucket: BucketState, now_ms: int) -> BudgetRow | None:
    if (budget := bucket.limit.budget) is None:
        return None
    firsts, retries = bucket.window.sums(now_ms, WINDOW_S)
    most = allowed(budget, bucket.window, now_ms)
    return BudgetRow(retries=retries, most=most, firsts=firsts)


def only_bucket(
    quota: Quota, rows: Sequence[BucketRow], waiting: int
) -> BucketRow | None:
    """Return the bucket of a quota that counts by nothing; None: it is not used yet.

    Args:
        quota: as it is in force.
        rows: its buckets, also those from when it counted by something.
        waiting: jobs that wait for the quota.
    """
    found = (row for row in rows if quota.per is None and not row.value)
    row = next(found, None)
    return None if row is None else msgspec.structs.replace(row, waiting=waiting)


def wait_of(
    bucket: BucketState, use: Use, holders: Sequence[int], now_ms: int
) -> QuotaWait | None:
    """Return how a bucket holds a job back; None: it does not.

    Args:
        bucket: as it is.
        use: the job's.
        holders: jobs that have permits of it.
        now_ms: the store's clock.
    """
    found = shortage(bucket, use.cost, now_ms)
    if found is None:
        return None
    return QuotaWait(
        quota=use.quota,
        value=use.value,
        used=bucket.in_use,
        cap=bucket.limit.concurrency,
        holders=tuple(holders[:HOLDERS_MAX]),
        opens_at_ms=found.opens_at_ms,
        why=found.why,
    )


def differing_of(rules: Rules, name: str) -> str | None:
    """Return how the definitions of a quota differ; None: they do not."""
    prefix = f"quota {name}: "
    found = [s.removeprefix(prefix) for s in rules.differing if s.startswith(prefix)]
    return " ".join(found) or None


def all_differing(rules: Rules) -> dict[str, str]:
    """Return how the definitions of quotas differ, by name."""
    told = {name: differing_of(rules, name) for name in rules.quotas}
    return {name: said for name, said in told.items() if said is not None}


def added_to(
    former: Override | None, override: Override, until_ms: int | None
) -> Override:
    """Return what is set of a quota, after some of its numbers were set.

    Args:
        former: what was set before.
        override: what is set now; a number that is None stays as it was.
        until_ms: when all of it ends; None: when it is reset.

    Raises:
        UsageError: they are not allowed, there are none, or one that stays as it was
            would end at another time.
    """
    given = {name: getattr(override, name) for name in _NUMBERS}
    if all(value is None for value in given.values()):
        raise UsageError(
            f"quota {override.quota}: nothing to set; give a rate, a burst or a "
            "concurrency. Nothing was changed"
        )
    if former is not None:
        kept = [
            name
            for name in _NUMBERS
            if given[name] is None and getattr(former, name) is not None
        ]
        if kept and former.until_ms != until_ms:
            raise UsageError(
                f"quota {override.quota}: its {' and '.join(kept)} was set with "
                "another end, and one end holds for all that is set; name what is to "
                "stay as well, or reset the quota first. Nothing was changed"
            )
        given = {
            name: getattr(former, name) if value is None else value
            for name, value in given.items()
        }
    try:
        _check_settable(override.quota)
        numbers = Quota(name=override.quota, **given)
        check_numbers(numbers, f"quota {override.quota}")
    except ConfigError as error:
        raise UsageError(f"{error}. Nothing was changed") from error
    return Override(
        quota=override.quota,
        **given,
        until_ms=until_ms,
        who=clean_text(override.who),
        note=clean_text(override.note),
    )


def _check_settable(name: str) -> None:
    kind = name.removeprefix(KIND_PREFIX)
    if kind == name:
        check_name(name)
    elif not NAME.fullmatch(kind):
        raise ConfigError(
            f"quota: {name[:60]!r} is no kind's own cap; expected {KIND_PREFIX!r} and "
            "a kind: 1 to 200 letters, digits or any of _ . : < > -"
        )


def checked_tenant(tenant: Tenant) -> Tenant:
    """Return a tenant's rule if it can be kept.

    Raises:
        UsageError: it says nothing, or a number or its name is not allowed.
    """
    if tenant == Tenant(name=tenant.name):
        raise UsageError(
            f"tenant {tenant.name}: nothing to set; give a rate, a concurrency or a "
            "weight. Nothing was changed"
        )
    if not is_tenant(tenant.name):
        raise UsageError(
            f"tenant: expected 1 to {TEXT_MAX} characters of text without NUL. Nothing "
            "was changed"
        )
    try:
        check_numbers(tenant, f"tenant {tenant.name}")
    except ConfigError as error:
        raise UsageError(f"{error}. Nothing was changed") from error
    return tenant
