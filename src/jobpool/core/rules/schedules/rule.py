"""Rules: at which times a schedule has a tick.

A tick's *nominal* time is what the rule says; it is *due* later by the schedule's
jitter. All times are milliseconds since 1970, UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice, pairwise

import msgspec

from jobpool.core.jobs.job import TIME_MAX_MS
from jobpool.core.rules.schedules.cron import read_cron
from jobpool.core.rules.schedules.zone import zone_of
from jobpool.core.units import DURATION_MAX_S, show_duration
from jobpool.errors import ConfigError

EVERY_MIN_MS, EVERY_MAX_MS = 1000, round(DURATION_MAX_S * 1000)
_PERIODS_LOOKED_AT = 100
"""Of a cron expression, to find its shortest period."""
_YEAR_2000_MS = 946_684_800_000


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a schedule has ticks: by `cron`, or every so often. See `check_rule`."""

    cron: str | None = None
    """Five fields, or a name such as ``@daily``."""
    every_ms: int | None = None
    """The period: from `starts_ms`, or else from when the schedule got this rule."""
    from_end: bool = False
    """The period is counted from the end of the last tick's job."""
    tz: str = "UTC"
    """The zone whose clocks `cron` goes by, and in which handlers are told the time."""
    jitter_ms: int = 0
    """Ticks are due later by less than this: always the same for one schedule."""
    starts_ms: int | None = None
    """The first moment at which there may be a tick."""
    ends_ms: int | None = None
    """The last moment at which there may be a tick."""


def check_rule(rule: Rule) -> Rule:
    """Return a rule that can be kept.

    Raises:
        ConfigError: it cannot; the message says why.
    """
    if (rule.cron is None) == (rule.every_ms is None):
        both = "both" if rule.cron is not None else "neither"
        raise ConfigError(
            f"a schedule has a cron expression or a period, got {both}; write "
            'cron="0 2 * * *" or every="30s"'
        )
    zone_of(rule.tz)
    if rule.cron is not None:
        read_cron(rule.cron)
        if rule.from_end:
            raise ConfigError(
                'from_="end" counts a period: write every="1h" instead of cron='
            )
    else:
        _period_ms(rule)
    _check_bounds(rule)
    _check_jitter(rule)
    return rule


def _period_ms(rule: Rule) -> int:
    """Return a rule's period, if it is one: others have no end of times.

    Raises:
        ConfigError: it is none.
    """
    every_ms = rule.every_ms or 0
    if not EVERY_MIN_MS <= every_ms <= EVERY_MAX_MS:
        raise ConfigError(
            f"every={show_duration(every_ms / 1000)} is out of range; expected 1s to "
            "100 years"
        )
    return every_ms


def _check_bounds(rule: Rule) -> None:
    for name, at_ms in (("starts", rule.starts_ms), ("ends", rule.ends_ms)):
        if at_ms is not None and not 0 <= at_ms <= TIME_MAX_MS:
            raise ConfigError(f"{name} is out of range; expected a time from 1970 on")
    if rule.starts_ms is None or rule.ends_ms is None:
        return
    if rule.starts_ms > rule.ends_ms:
        raise ConfigError("starts is later than ends; exchange them")
    if next_after(rule, rule.starts_ms - 1, since_ms=rule.starts_ms) is None:
        raise ConfigError("the schedule has no time between starts and ends")


def _check_jitter(rule: Rule) -> None:
    if rule.jitter_ms < 0:
        raise ConfigError("jitter is negative; expected a duration from 0s on")
    if not rule.jitter_ms:
        return
    period_ms = rule.every_ms or _shortest_period_ms(rule)
    if rule.jitter_ms >= period_ms:
        raise ConfigError(
            f"jitter={show_duration(rule.jitter_ms / 1000)} is not below the period, "
            f"{show_duration(period_ms / 1000)}: a tick would be due after the next "
            "one's time"
        )


def _shortest_period_ms(rule: Rule) -> int:
    anywhere = Rule(cron=rule.cron)
    ticks = islice(times_after(anywhere, _YEAR_2000_MS), _PERIODS_LOOKED_AT)
    return min((b - a for a, b in pairwise(ticks)), default=TIME_MAX_MS)


def jitter_of(rule: Rule, name: str) -> int:
    """Return by how many milliseconds a schedule's ticks are due later."""
    if rule.jitter_ms < 1:
        return 0
    digest = blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % rule.jitter_ms


def next_after(rule: Rule, at_ms: int, *, since_ms: int = 0) -> int | None:
    """Return the first nominal time strictly after one; None: there is none.

    Args:
        rule: one that `check_rule` let pass.
        at_ms: after this. For `from_end`: when the last job ended.
        since_ms: when the schedule got this rule.

    Raises:
        ConfigError: this host does not know the zone; or the rule has no times.
    """
    starts_ms = 0 if rule.starts_ms is None else rule.starts_ms
    next_ms: int | None
    if rule.cron is not None:
        after_ms = max(at_ms, starts_ms - 1)
        next_ms = read_cron(rule.cron).next_after(zone_of(rule.tz), after_ms)
    else:
        every_ms = _period_ms(rule)
        next_ms = at_ms + every_ms
        if not rule.from_end:
            anchor_ms = since_ms if rule.starts_ms is None else rule.starts_ms
            next_ms -= (at_ms - anchor_ms) % every_ms
        next_ms = max(next_ms, starts_ms)
    ends_ms = TIME_MAX_MS if rule.ends_ms is None else rule.ends_ms
    return None if next_ms is None or next_ms > ends_ms else next_ms


def between(
    rule: Rule, after_ms: int, until_ms: int, *, since_ms: int = 0
) -> Iterator[int]:
    """Yield the nominal times after one moment, up to and including another."""
    for at_ms in times_after(rule, after_ms, since_ms=since_ms):
        if at_ms > until_ms:
            return
        yield at_ms


def times_after(rule: Rule, after_ms: int, *, since_ms: int = 0) -> Iterator[int]:
    """Yield the nominal times strictly after one, without end unless the rule ends."""
    at_ms = next_after(rule, after_ms, since_ms=since_ms)
    while at_ms is not None:
        yield at_ms
        at_ms = next_after(rule, at_ms, since_ms=since_ms)
