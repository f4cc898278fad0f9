"""The list of kinds: what each uses of its limits, and how its attempts end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from starlette.responses import Response

from jobpool.core.rules.circuit_breaker import BreakerState, Saved
from jobpool.core.rules.usage.tuning import Proposal, Verdict
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.live.readers import Usage
from jobpool.dashboard.reading import Unknown
from jobpool.monitoring.glance.glance import Seen
from jobpool.words.tuning.advice import KindAdvice, advice_of

_NEAR, _FULL = 0.8, 0.95
"""Shares of a limit."""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What nearly all attempts keep below, beside the limit: bytes, or seconds."""

    limit: Proposal
    share: float | None
    """P99 as a share of the limit; None: one of them is not seen."""
    tone: str
    change: str
    """``raise`` or ``lower``, if that is proposed; else ""."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A kind in a pool."""

    kind: str
    pool: str
    attempts: int
    cut_short: int
    memory: Use | None
    time: Use | None
    ends_per_s: float
    out_of_memory: int
    """In the last minute, like the one after it."""
    timeouts: int
    is_paused: bool
    is_crashing: bool
    is_published: bool
    """A supervisor knows it."""


async def show(asked: Asked) -> Response:
    """Answer with the page."""
    seen, usage = await asked.served.live.seen(), await asked.served.live.usage()
    listed: Unknown | list[Line]
    if isinstance(seen, Unknown):
        listed = seen
    else:
        used = None if isinstance(usage, Unknown) else usage
        # In a thread: hundreds of kinds have sketches of some hundred buckets each.
        listed = await asyncio.to_thread(lines_of, seen, used)
    return asked.page("kinds.html", listed=listed, usage=usage)


def lines_of(seen: Seen, usage: Usage | None) -> list[Line]:
    """Return the list: the fullest first, those without any attempt last.

    Args:
        seen: what was read.
        usage: what attempts have used; None: it is not known yet.
    """
    advice = advice_of(
        () if usage is None else usage.sketches,
        samples=(),
        kinds=seen.kinds,
        reports=seen.reports,
        pools=(),
    )
    found = {(one.kind, one.pool): one for one in advice.kinds}
    places = [*found]
    places += [(one.kind, one.pool) for one in seen.kinds]
    lines = [_line(*place, found.get(place), seen) for place in dict.fromkeys(places)]
    return sorted(
        lines,
        key=lambda one: (
            -((one.memory and one.memory.share) or 0.0),
            not one.attempts,
            one.kind,
        ),
    )


def _line(kind: str, pool: str, advice: KindAdvice | None, seen: Seen) -> Line:
    told = [row.report.kinds.get(kind) for row in seen.reports]
    reports = [one for one in told if one is not None]
    memory = None if advice is None else use_of(advice.memory)
    return Line(
        kind=kind,
        pool=pool,
        attempts=0 if advice is None else advice.memory.attempts,
        cut_short=0 if advice is None else advice.memory.cut_short,
        memory=memory,
        time=None if advice is None else use_of(advice.time),
        ends_per_s=sum(one.ends_per_s for one in reports),
        out_of_memory=sum(one.out_of_memory for one in reports),
        timeouts=sum(one.timeouts for one in reports),
        is_paused=any((one.what, one.name) == ("kind", kind) for one in seen.pauses),
        is_crashing=is_crashing(kind, seen.breakers),
        is_published=any(one.kind == kind for one in seen.kinds),
    )


def is_crashing(kind: str, breakers: Sequence[Saved]) -> bool:
    """Say whether a kind's jobs are tried one at a time, since they crash."""
    return any(
        one.kind == kind and one.state is not BreakerState.CLOSED for one in breakers
    )


def use_of(limit: Proposal) -> Use:
    """Return what is used of a limit."""
    share = limit.p99 / limit.now if limit.p99 is not None and limit.now else None
    tone = ""
    if share is not None and (share >= _NEAR or limit.p99_is_least):
        tone = "bad" if share >= _FULL or limit.p99_is_least else "warn"
    return Use(
        limit=limit, share=share, tone=tone, change=_CHANGES.get(limit.verdict, "")
    )


_CHANGES: Mapping[Verdict, str] = {Verdict.RAISE: "raise", Verdict.LOWER: "lower"}
