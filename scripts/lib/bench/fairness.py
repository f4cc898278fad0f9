"""What shares of tenants cost: claims of a fair pool, over those of a plain one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

from bench.quotas import BATCH, SYSTEMS, Claimer, cycles, enough, fresh, pairs_of
from bench.report import Sample
from bench.sections import Scale

FEW, MANY = 100, 10_000
"""Tenants."""
EACH = 3
"""Jobs of each of many tenants."""
CLAIMS = 200


def samples(scale: Scale, number: int) -> Iterator[Sample]:
    """Measure one round."""
    for system in SYSTEMS:
        yield from _many(system, number)
        yield from _few(scale, system, number)


def _many(system: str, number: int) -> Iterator[Sample]:
    """Claims where many tenants wait."""
    took_ms = {}
    for fair in ("", "tenant"):
        with fresh(system) as url, closing(Claimer()) as claimer:
            claimer.call("open", url=url, run="r", kinds=["k"], fair=fair)
            claimer.call("fill", kind="k", count=EACH * MANY, tenants=MANY)
            if fair:
                claimer.call("warm", kinds=["k"], batch=BATCH, claims=MANY // 500)
            took_ms[fair] = claimer.call(
                "claim_ms", kinds=["k"], batch=BATCH, times=CLAIMS
            )
    what = f"claim of {BATCH} beside {MANY:,} tenants: times plain"
    yield Sample("fairness", what, system, number, took_ms["tenant"] / took_ms[""])


def _few(scale: Scale, system: str, number: int) -> Iterator[Sample]:
    """Claims and ends, as fast as they come."""
    with ExitStack() as stack:
        sides = {}
        for fair in ("", "tenant"):
            url = stack.enter_context(fresh(system))
            sides[fair] = stack.enter_context(closing(Claimer()))
            sides[fair].call("open", url=url, run="r", kinds=["k"], fair=fair)
        for pair in range(-1, pairs_of(scale)):
            rates: dict[str, float] = {}
            for fair in ("", "tenant") if pair % 2 else ("tenant", ""):
                count = enough(rates.values())
                sides[fair].call("fill", kind="k", count=count, tenants=FEW)
                rates[fair] = cycles([sides[fair]], ["k"])
            if pair >= 0:  # nobody had asked for anything before
                yield Sample(
                    "fairness",
                    f"{FEW} tenants: over plain",
                    system,
                    number * pairs_of(scale) + pair,
                    rates["tenant"] / rates[""],
                )
