"""Prints what `jobpool tune` has found, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from jobpool.cli.diagnose.tune.advice import Advice, KindAdvice, PoolAdvice
from jobpool.cli.output import (
    counted,
    heading,
    print_line,
    print_table,
    seconds,
    size,
)
from jobpool.core.rules.usage.tuning import ATTEMPTS_LEAST, Proposal, Verdict
from jobpool.core.units import show_size

_Show = Callable[[float | None], str | None]


def print_advice(advice: Advice) -> None:
    """Print all of it: memory, time, what needs a word, and what it comes to."""
    known = [one for one in advice.kinds if one.is_known]
    if known:
        heading("MEMORY (all attempts of about eight weeks, to within 5 %; +: or more)")
        _print_limits(known, [one.memory for one in known], _size)
        heading("TIME")
        _print_limits(known, [one.time for one in known], seconds)
    if remarks := list(_remarks(advice)):
        heading("NOTES")
        for remark in remarks:
            print_line(*remark)
    if pools := [one for one in advice.pools if one.reserved_bytes]:
        heading("POOLS (with each slot at the limit of the pool's largest kind)")
        for pool in pools:
            print_line(f"pool {pool.pool}", counted(pool.slots, "slot"), _sum(pool))


def changes_of(advice: Advice) -> int:
    """Return how many limits would change."""
    return sum(
        limit.verdict in (Verdict.LOWER, Verdict.RAISE) and limit.proposed is not None
        for one in advice.kinds
        for limit in (one.memory, one.time)
    ) + sum(one.recycle_proposed is not None for one in advice.pools)


def _print_limits(
    kinds: Sequence[KindAdvice], limits: Sequence[Proposal], show: _Show
) -> None:
    columns = ("ATTEMPTS", "P50", "P99", "MAX", "LIMIT", "PROPOSED")
    print_table(
        ("KIND", "POOL", *columns, "WHY"),
        (
            (
                kind.kind,
                kind.pool,
                f"{limit.attempts:,}",
                show(limit.p50),
                f"{show(limit.p99)}{'+' * limit.p99_is_least}",
                show(limit.most),
                show(limit.now),
                _proposed(limit, show),
                _why(limit, show),
            )
            for kind, limit in zip(kinds, limits, strict=True)
        ),
        right=columns,
    )


def _proposed(limit: Proposal, show: _Show) -> str | None:
    return "keep" if limit.verdict is Verdict.KEEP else show(limit.proposed)


def _why(limit: Proposal, show: _Show) -> str:
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


def _remarks(advice: Advice) -> Iterator[tuple[str, ...]]:
    """Yield lines on what no limit can say."""
    for one in advice.kinds:
        for said in _of_kind(one):
            yield one.kind, said
    for pool in advice.pools:
        if pool.recycle_proposed is not None:
            said = (
                f"recycle = {pool.recycle_proposed} instead of {pool.recycle}: before "
                f"{pool.leaking} has left half of its room behind"
            )
            yield f"pool {pool.pool}", said
    if few := [one for one in advice.kinds if not one.is_known]:
        names = ", ".join(f"{one.kind} ({one.memory.attempts})" for one in few)
        yield f"fewer than {ATTEMPTS_LEAST} attempts, too few to say anything", names


def _of_kind(kind: KindAdvice) -> Iterator[str]:
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


def _sum(pool: PoolAdvice) -> str:
    """Return what the proposals come to for a pool."""
    now, then = pool.reserved_bytes, pool.proposed_bytes
    if then == now:
        return f"up to {show_size(now)}, as before"
    if then > now:
        more = show_size(then - now)
        return f"up to {show_size(now)} now, {show_size(then)} then: {more} more"
    said = f"up to {show_size(now)} now, {show_size(then)} then"
    said = f"{said}: {show_size(now - then)} less reserved"
    if pool.room_for:
        said = f"{said}; room for {pool.room_for} more slots"
    return said


def _size(value: float | None) -> str | None:
    return size(None if value is None else round(value))
