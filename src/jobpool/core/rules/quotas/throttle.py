"""What a service says about when to come back, and how often a job may be told so."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

THROTTLES_MAX = 20
"""Times in a row that a job may be throttled; the next one is a failure."""
THROTTLED_MAX_S = 86400.0
"""Time since the first of them after which one more is a failure."""
THROTTLED_STATUS = frozenset({429, 503})
"""Answers of HTTP that may say when to come back; 429 always means to slow down."""
_SECONDS = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_EPOCH_FROM_S = 1_000_000_000
"""Larger numbers are times, not durations: 32 years."""
_EPOCH_MS_FROM = 100_000_000_000
_RESETS = ("x-ratelimit-reset", "ratelimit-reset", "x-rate-limit-reset")


def is_refused(throttles: int, since_s: float) -> bool:
    """Return whether a job has been throttled too often: it has failed.

    Args:
        throttles: how often in a row, this time included.
        since_s: since the first of them.
    """
    return throttles > THROTTLES_MAX or since_s >= THROTTLED_MAX_S


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return how long an answer says to wait, or None if it does not say.

    Retry-After counts most, in seconds or as a date; then X-RateLimit-Reset and its
    kin, in seconds or as a time since the epoch, in seconds or milliseconds. A time is
    the service's: it counts from the answer's own Date, if it has one, since the
    clocks may differ.

    Args:
        headers: of the answer, in any case.
        now_s: seconds since the epoch, for an answer without a Date.
    """
    lower = {str(name).lower(): str(value).strip() for name, value in headers.items()}
    if (said := lower.get("retry-after")) is not None:
        wait = _seconds(said)
        if wait is None and (at_s := _date(said)) is not None:
            wait = max(0.0, at_s - _sent_s(lower, now_s))
        if wait is not None:
            return wait
    for name in _RESETS:
        if (reset := _seconds(lower.get(name, ""))) is not None:
            if reset >= _EPOCH_MS_FROM:
                reset /= 1000
            if reset >= _EPOCH_FROM_S:
                reset = max(0.0, reset - _sent_s(lower, now_s))
            return reset
    return None


def _sent_s(lower: Mapping[str, str], now_s: float) -> float:
    sent_s = _date(lower.get("date", ""))
    return now_s if sent_s is None else sent_s


def _seconds(text: str) -> float | None:
    # "10, 100;w=60": what follows is the policy
    first = re.split("[,;]", text, maxsplit=1)[0].strip()
    return float(first) if _SECONDS.fullmatch(first) else None


def _date(text: str) -> float | None:
    # 10 ms and 15 modules, for what few answers say.
    from email.utils import mktime_tz, parsedate_tz  # noqa: PLC0415

    parsed = parsedate_tz(text)
    if parsed is None:
        return None
    try:
        at = float(mktime_tz(parsed))
    except (OverflowError, ValueError):  # a year or month that does not exist
        return None
    return at if math.isfinite(at) else None
