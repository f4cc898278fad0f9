"""Prints what `jobpool tune` has found, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobpool.cli.output import heading, print_line, print_table
from jobpool.core.rules.usage.tuning import ATTEMPTS_LEAST, Proposal, Verdict
from jobpool.core.units import show_size
from jobpool.words.figures import counted, seconds, size
from jobpool.words.tuning.advice import Advice, KindAdvice, PoolAdvice
from jobpool.words.tuning.reasons import Show, remarks_on, why


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


def _print_limits(
    kinds: Sequence[KindAdvice], limits: Sequence[Proposal], show: Show
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
                why(limit, show),
            )
            for kind, limit in zip(kinds, limits, strict=True)
        ),
        right=columns,
    )


def _proposed(limit: Proposal, show: Show) -> str | None:
    return "keep" if limit.verdict is Verdict.KEEP else show(limit.proposed)


def _remarks(advice: Advice) -> Iterator[tuple[str, ...]]:
    """Yield lines on what no limit can say."""
    for one in advice.kinds:
        for said in remarks_on(one):
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
