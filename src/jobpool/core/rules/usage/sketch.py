"""Sketches: histograms from which a quantile can be read, to within 5 %. Pure.

Theory of operation. Bucket b counts the values from 1.05^(b-1) to 1.05^b, so a few
hundred buckets hold anything from a millisecond to a century, or from a byte to a
terabyte. Sketches of several hosts and weeks are added up by adding their counts.

An attempt that was ended before its time would have used more: it is counted where it
ended, as censored. A quantile then comes from the product-limit estimate: each bucket's
values are compared with all that reached it, censored or not.
Source: Kaplan and Meier, Nonparametric Estimation from Incomplete Observations, 1958.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

GROWTH = 1.05
BUCKET_MAX = 1000
"""Beyond any value: 1.05^1000 is over 10^21."""
WEEK_MS = 7 * 86_400_000
WEEKS_KEPT = 8
"""Weeks before the present one."""
_PER_LOG = 1 / math.log(GROWTH)
_ROUNDING = 1e-9


class Measure(StrEnum):
    """What is measured of an attempt, as stored."""

    MEMORY = "memory"
    """The highest memory of its processes, in bytes."""
    DURATION = "duration"
    """How long it ran, in milliseconds."""


class Counts(NamedTuple):
    """The attempts in one bucket."""

    attempts: int
    censored: int = 0
    """Of them: those that would have used more."""


class Quantile(NamedTuple):
    """A quantile of a sketch."""

    value: float
    """Never below the true one, and at most 5 % above it."""
    is_least: bool = False
    """Too many were censored to know it: it is at least this value."""


def buckets_of(values: Iterable[float]) -> list[int]:
    """Return the bucket of each value; values of at most 1 are in bucket 0."""
    log, ceil = math.log, math.ceil
    return [
        ceil(min(log(value) * _PER_LOG, BUCKET_MAX)) if value > 1.0 else 0
        for value in values
    ]


def value_of(bucket: int) -> float:
    """Return the highest value of a bucket."""
    return math.pow(GROWTH, bucket)


def week_of(now_ms: int) -> int:
    """Return the number of a moment's week, counted from 1970."""
    return now_ms // WEEK_MS


def quantile(counts: Mapping[int, Counts], share: float) -> Quantile | None:
    """Return the value that a share of all attempts does not exceed.

    Args:
        counts: by bucket.
        share: of 1, such as 0.99.

    Returns:
        None: there is no attempt.
    """
    left = sum(one.attempts for one in counts.values())
    if left <= 0:
        return None
    above = 1.0
    highest = 0
    for bucket in sorted(counts):
        one = counts[bucket]
        if one.attempts <= 0:
            continue
        highest = bucket
        above *= 1.0 - (one.attempts - one.censored) / left
        left -= one.attempts
        if above <= 1.0 - share + _ROUNDING:
            return Quantile(value_of(bucket))
    return Quantile(value_of(highest), is_least=True)
