"""Why a limit is proposed, and what no limit can say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jobpool.core.rules.usage.tuning import ATTEMPTS_LEAST, Proposal, Verdict
from jobpool.core.units import show_size
from jobpool.words.tuning.advice import Advice, KindAdvice

Show = Callable[[float | None], str | None]
"""Shows a limit: bytes, or seconds."""


def why(limit: Proposal, show: Show) -> str:
    """Return the consequence of a proposal, replayed over what was seen."""
    of = f"of {limit.attempts:,}"
    if limit.verdict is Verdict.UNKNOWN:
        return f"too few attempts: at least {ATTEMPTS_LEAST}"
    early = f"{limit.cut_short:,} {of} were ended early"
    if limit.verdict is Verdict.KEEP:
        return f"{early}, none by this limit" if limit.proposed is None else ""
    if limit.p99_is_least:
        return f"{early}: what they need is not known; look again after a day"
    said = f"would have ended {limit.over_proposed:,} {of}"
    if limit.over_now > limit.over_proposed:
        said = f"{said}; the present limit {limit.over_now:,}"
    if limit.p99_between is not None:
        low, high = limit.p99_between
        above = f"{show(high)}" if high is not None else "above all that was seen"
        said = f"{said}; uncertain: P99 is from {show(low)} to {above}"
    return said


def remarks_on(kind: KindAdvice) -> Iterator[str]:
    """Yield what no limit can say of a kind."""
    if kind.memory.uneven:
        yield (
            "one in 200 needs over 1.5 times what 99 in 100 need: give large jobs a "
            "pool of their own, or memory_growth = 2 with a limit near P99"
        )
    if (by := kind.by_payload) is not None:
        small, large = show_size(by.small_p99_bytes), show_size(by.large_p99_bytes)
        yield (
            "its memory follows the size of its arguments: P99 is "
            f"{small} in the lower third, {large} with "
            f"{show_size(by.large_from_bytes)} and more: give those jobs a limit of "
            "their own, options(memory=...), or split their input"
        )
    if kind.leak_bytes:
        left = show_size(kind.leak_bytes)
        yield f"leaks: each job leaves about {left} behind in its child"


def changes_of(advice: Advice) -> int:
    """Return how many limits would change."""
    return sum(
        limit.verdict in (Verdict.LOWER, Verdict.RAISE) and limit.proposed is not None
        for one in advice.kinds
        for limit in (one.memory, one.time)
    ) + sum(one.recycle_proposed is not None for one in advice.pools)
