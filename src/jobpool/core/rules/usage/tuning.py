"""Tuning: which limits would fit what attempts have been seen to use. Pure.

Theory of operation. A sketch (`core.rules.usage.sketch`) has all attempts of some
weeks. A memory limit is proposed that nearly all would have kept, with a margin: above
the 997th of a thousand, and never beyond half as much again as 99 in 100 need, for that
is room which nobody uses. A kind of which some need far more than the others has no
such limit, and is said to be uneven.

Attempts that were ended early would have used more: what they needed is not known. If
that is more than one in a hundred, the present limit is too low, and the next one is a
step and no answer; unless they came nowhere near that limit, and something else has
ended them. A limit is raised at once when too many were over it, and lowered
only if that frees a good part of it.

Few attempts say little of one in a hundred. Below a thousand an interval says how
little; below a hundred nothing is proposed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any

import msgspec

from jobpool.core.rules.usage.sketch import GROWTH, Counts, quantile, value_of

ATTEMPTS_LEAST = 100
"""Fewer attempts tell nothing of one in a hundred."""
ATTEMPTS_SURE = 1000
"""With fewer, a proposal says how uncertain it is."""
UNEVEN = 1.5
"""A kind is uneven if P99.5 is so many times P99."""
_MARGIN = 1.15
_MARGIN_TOP = 1.05
_MOST = 1.48
"""Times P99: the most that is proposed for an even kind."""
_FEW = 1.25
"""Times the highest that was seen, while there are few attempts."""
_STEP = 1.5
_STEP_BYTES = 100 * 2**20
"""Where the need is unknown: the next limit is so many times the present one, or by so
much higher. Source: the Vertical Pod Autoscaler's answer to a container that ran out of
memory is 1.2 times, or 100 MiB more."""
_LOWER = 0.8
"""A limit is not lowered for less than a fifth of it."""
_TOO_MANY = 0.005
"""Of a kind's attempts may be over its limit."""
_NEAR = 0.9
"""Times a limit: what was ended there may have been ended by it."""
_CERTAINTY = 1.96
"""Standard deviations of an interval of 95 %."""
_SLOW = 3.0
_TIMEOUT_LEAST_S = 10.0
"""A limit of time ends what hangs. It is not to end what a busy host slows down."""
_TIMES_S = (
    *(10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1200, 1800, 2700, 3600),
    *(5400, 7200, 10800, 21600, 43200, 86400, 172800, 259200, 604800),
)
LEAK_SHARE = 0.5
"""What a child's jobs leave behind may take this share of the room below a limit."""


class Verdict(StrEnum):
    """What is to be done about a limit."""

    KEEP = "keep"
    LOWER = "lower"
    RAISE = "raise"
    UNKNOWN = "unknown"
    """Too few attempts to say."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """One limit of one kind: what was seen, and what would fit. Bytes, or seconds."""

    attempts: int
    cut_short: int
    """Of them: those that were ended early; they would have used more."""
    p50: float | None = None
    p99: float | None = None
    most: float | None = None
    """The highest that was seen."""
    p99_is_least: bool = False
    """Too many were cut short to know it: it is at least this."""
    p99_between: tuple[float, float | None] | None = None
    """Where P99 lies, with a certainty of 95 %, if there are few attempts; None as the
    upper end: above all that was seen."""
    now: float | None = None
    """The limit in force; None: no supervisor has published the kind."""
    proposed: float | None = None
    verdict: Verdict = Verdict.UNKNOWN
    uneven: bool = False
    """Some attempts need far more than all the others."""
    over_now: int = 0
    """Attempts that were seen above the present limit."""
    over_proposed: int = 0

    @property
    def next(self) -> float | None:
        """The limit after a change that takes up the proposal, if there is any."""
        changes = self.verdict in (Verdict.LOWER, Verdict.RAISE)
        return self.proposed if changes else self.now


def memory_proposal(counts: Mapping[int, Counts], now_bytes: float | None) -> Proposal:
    """Return what fits the memory that attempts have used.

    Args:
        counts: the sketch of their highest memory.
        now_bytes: the limit in force; None: unknown.
    """
    seen = _seen(counts, now_bytes)
    if seen.p99 is None or seen.most is None or seen.attempts < ATTEMPTS_LEAST:
        return seen
    if seen.p99_is_least and not _reaches(seen):
        return msgspec.structs.replace(seen, verdict=Verdict.KEEP)
    if seen.p99_is_least:
        known = max(now_bytes or 0.0, seen.most / GROWTH)
        return _judged(seen, counts, next_bytes(known))
    p99, p995, p997 = (_inner(counts, share) for share in (0.99, 0.995, 0.997))
    uneven = p995 >= UNEVEN * p99
    wanted = max(_MARGIN * p99, _MARGIN_TOP * p997)
    if uneven:
        wanted = max(wanted, _MARGIN * _inner(counts, 0.999))
    else:
        wanted = min(wanted, _MOST * p99)
    if seen.attempts < ATTEMPTS_SURE:
        wanted = max(wanted, _FEW * seen.most)
    seen = msgspec.structs.replace(seen, uneven=uneven)
    return _judged(seen, counts, rounded_size(wanted))


def next_bytes(now_bytes: float) -> float:
    """Return the limit to try after one that was too low, if no more is known."""
    return rounded_size(max(_STEP * now_bytes, now_bytes + _STEP_BYTES))


def timeout_proposal(counts: Mapping[int, Counts], now_s: float | None) -> Proposal:
    """Return what fits the time that attempts have taken.

    A time limit has far more room than one of memory: room costs nothing here, and
    only what hangs is to be ended.

    Args:
        counts: the sketch of their durations, in milliseconds.
        now_s: the limit in force; None: unknown.
    """
    now_ms = None if now_s is None else 1000.0 * now_s
    seen = _seen(counts, now_ms)
    p99 = seen.p99
    if p99 is None or seen.attempts < ATTEMPTS_LEAST:
        return _in_seconds(seen)
    if seen.p99_is_least and not _reaches(seen):
        return _in_seconds(msgspec.structs.replace(seen, verdict=Verdict.KEEP))
    wanted_s = _SLOW * max(p99, _inner(counts, 0.999)) / 1000.0
    if seen.p99_is_least:
        wanted_s = max(2.0 * (now_s or 0.0), wanted_s)
    return _in_seconds(_judged(seen, counts, 1000.0 * rounded_time(wanted_s)))


def recycling(grown_bytes: float, room_bytes: float) -> int:
    """Return after how many jobs a child should be replaced.

    Args:
        grown_bytes: what each job leaves behind, above 0.
        room_bytes: what its jobs' limit leaves above what they need.
    """
    jobs = LEAK_SHARE * max(room_bytes, 0.0) / grown_bytes
    if jobs < 1:
        return 1
    step: int = 10 ** (len(str(int(jobs))) - 1)
    return int(jobs) // step * step


def over(counts: Mapping[int, Counts], limit: float) -> int:
    """Return how many attempts were seen above a limit."""
    return sum(
        one.attempts
        for bucket, one in counts.items()
        if value_of(bucket) / math.sqrt(GROWTH) > limit
    )


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Return Spearman's rank correlation; 0.0: one side never changes.

    Source: Spearman, The Proof and Measurement of Association between Two Things, 1904.
    """
    if len(pairs) < 2:  # noqa: PLR2004 - one pair says nothing
        return 0.0
    left, right = (_ranks([pair[side] for pair in pairs]) for side in (0, 1))
    mean = (len(pairs) - 1) / 2
    both = sum((x - mean) * (y - mean) for x, y in zip(left, right, strict=True))
    spread = math.sqrt(
        sum((x - mean) ** 2 for x in left) * sum((y - mean) ** 2 for y in right)
    )
    return both / spread if spread else 0.0


def rounded_size(size_bytes: float) -> float:
    """Round bytes up to a number that people write; by 2 % at most from 64 MiB on."""
    mib = 2**20
    step = mib
    while step * 64 < size_bytes:
        step *= 2
    return max(float(mib), math.ceil(size_bytes / step) * float(step))


def rounded_time(time_s: float) -> float:
    """Round seconds up to a time that people write: 45 s, 3 min, 2 h."""
    wanted = max(time_s, _TIMEOUT_LEAST_S)
    return float(next((one for one in _TIMES_S if one >= wanted), math.ceil(wanted)))


def _seen(counts: Mapping[int, Counts], now: float | None) -> Proposal:
    """Return what was seen, with no proposal yet."""
    attempts = sum(one.attempts for one in counts.values())
    p50, p99 = quantile(counts, 0.5), quantile(counts, 0.99)
    used = [bucket for bucket, one in counts.items() if one.attempts > 0]
    return Proposal(
        attempts=attempts,
        cut_short=sum(one.censored for one in counts.values()),
        p50=p50.value if p50 else None,
        p99=p99.value if p99 else None,
        p99_is_least=p99 is not None and p99.is_least,
        p99_between=_between(counts, attempts),
        most=value_of(max(used)) if used else None,
        now=now,
        over_now=0 if now is None else over(counts, now),
    )


def _in_seconds(seen: Proposal) -> Proposal:
    """Return the same of milliseconds in seconds."""
    between = None
    if seen.p99_between is not None:
        low, high = seen.p99_between
        between = low / 1000.0, None if high is None else high / 1000.0
    values: dict[str, Any] = {
        name: None if (value := getattr(seen, name)) is None else value / 1000.0
        for name in ("p50", "p99", "most", "now", "proposed")
    }
    return msgspec.structs.replace(seen, p99_between=between, **values)


def _reaches(seen: Proposal) -> bool:
    """Say whether attempts came near the limit; else something else ended them."""
    return seen.now is None or (seen.most or 0.0) >= _NEAR * seen.now


def _judged(seen: Proposal, counts: Mapping[int, Counts], wanted: float) -> Proposal:
    """Return the same with a proposal and its verdict."""
    now = seen.now
    if now is None:
        verdict = Verdict.RAISE
    elif seen.p99_is_least or seen.over_now > _TOO_MANY * seen.attempts:
        verdict = Verdict.RAISE if wanted > now else Verdict.KEEP
    else:
        verdict = Verdict.LOWER if wanted <= _LOWER * now else Verdict.KEEP
    return msgspec.structs.replace(
        seen, proposed=wanted, verdict=verdict, over_proposed=over(counts, wanted)
    )


def _between(
    counts: Mapping[int, Counts], attempts: int
) -> tuple[float, float | None] | None:
    """Return between which values P99 lies; None: there are enough attempts, or none.

    By the ranks between which the true one lies (a binomial distribution).
    """
    if not 0 < attempts < ATTEMPTS_SURE:
        return None
    share = 0.99
    off = _CERTAINTY * math.sqrt(attempts * share * (1 - share))
    low, high = attempts * share - off, attempts * share + off
    return (
        _at_rank(counts, max(low, 1.0)),
        None if high >= attempts else _at_rank(counts, high),
    )


def _at_rank(counts: Mapping[int, Counts], rank: float) -> float:
    below = 0
    for bucket in sorted(counts):
        below += counts[bucket].attempts
        if below >= rank:
            return value_of(bucket)
    return value_of(max(counts))


def _inner(counts: Mapping[int, Counts], share: float) -> float:
    """Return a quantile, placed within its bucket by how far into that it comes."""
    found = quantile(counts, share)
    if found is None or found.is_least:
        return found.value if found else 0.0
    total = sum(one.attempts for one in counts.values())
    edges = [-1, *sorted(counts)]
    below = 0
    for _, bucket in pairwise(edges):
        here = counts[bucket].attempts
        if value_of(bucket) >= found.value:
            part = (share * total - below) / here if here else 1.0
            return value_of(bucket) * math.pow(GROWTH, min(max(part, 0.0), 1.0) - 1.0)
        below += here
    return found.value


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal ones share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in range(first, last + 1):
            ranks[order[place]] = (first + last) / 2
        first = last + 1
    return ranks
