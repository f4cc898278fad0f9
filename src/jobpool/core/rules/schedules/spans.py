"""Spans of a rule's times: how many, and the newest, whatever their length."""

from __future__ import annotations

from itertools import islice

from jobpool.core.rules.schedules.rule import Rule, between

COUNTED_MAX = 10_000
"""Times of a cron expression are counted up to here: each has to be computed."""
_MINUTE_MS = 60_000
"""Cron expressions have no shorter period."""
_WIDER = 8


def count_between(rule: Rule, after_ms: int, until_ms: int, *, since_ms: int) -> int:
    """Return how many times there are after one moment up to another.

    At most `COUNTED_MAX`, which stands for that or more.
    """
    if rule.every_ms is None or rule.from_end:
        ticks = between(rule, after_ms, until_ms, since_ms=since_ms)
        return sum(1 for _ in islice(ticks, COUNTED_MAX))
    anchor_ms = since_ms
    if rule.starts_ms is not None:
        anchor_ms = rule.starts_ms
        after_ms = max(after_ms, rule.starts_ms - 1)
    if rule.ends_ms is not None:
        until_ms = min(until_ms, rule.ends_ms)
    if until_ms <= after_ms:
        return 0
    every_ms = rule.every_ms
    until, after = (
        (until_ms - anchor_ms) // every_ms,
        (after_ms - anchor_ms) // every_ms,
    )
    return min(until - after, COUNTED_MAX)


def newest_between(
    rule: Rule, after_ms: int, until_ms: int, *, since_ms: int, count: int
) -> list[int]:
    """Return the last *count* times after one moment up to another, oldest first."""
    if count < 1 or until_ms <= after_ms:
        return []
    span_ms = count * (rule.every_ms or _MINUTE_MS)
    while True:
        from_ms = max(after_ms, until_ms - span_ms)
        found = list(between(rule, from_ms, until_ms, since_ms=since_ms))
        if len(found) >= count or from_ms == after_ms:
            return found[-count:]
        span_ms *= _WIDER
