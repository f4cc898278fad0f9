"""Runs many simulated scenarios, and prints the results on one page.

Each seed is a whole life of one or several supervisors: jobs, faults, a quiet phase,
a drain; one in fifty takes days. What is real and what is simulated is described in
tests/simulation; what must hold in tests/support/store/invariants.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simulation.many import Sums, run_many
from simulation.rare import RARE
from simulation.shrink import shrink, story
from simulation.simulate import run_seed
from support.store.invariants import CHECKED_BY

YEAR_S = 365.25 * 86400
TOLD_MAX = 3
"""At most this many failures are shrunk and printed in full."""
SAY_EVERY = 5000


def main() -> int:
    """Run the scenarios and report."""
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5000)
    parser.add_argument("--seed0", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--minutes", type=float, help="start no seed after this many")
    parser.add_argument("--json", type=Path, help="write the figures here")
    given = parser.parse_args()
    began_s = time.monotonic()
    until_s = began_s + 60 * given.minutes if given.minutes else float("inf")
    said = _Said()
    seeds = range(given.seed0, given.seed0 + given.seeds)
    sums = run_many(seeds, processes=given.jobs, said=said, until_s=until_s)
    figures = figures_of(sums, given.seed0, time.monotonic() - began_s)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print("\n".join(page(figures)))
    for seed in sorted(sums.failed)[:TOLD_MAX]:
        print()
        print(story(shrink(run_seed(seed))))
    return 1 if sums.failed else 0


class _Said:
    """Reports progress from time to time, and failures at once."""

    def __init__(self) -> None:
        self._next = SAY_EVERY
        self._reported: set[int] = set()

    def __call__(self, sums: Sums) -> None:
        for seed in sums.failed.keys() - self._reported:
            self._reported.add(seed)
            print(f"seed {seed}: {sums.failed[seed]}", file=sys.stderr, flush=True)
        if sums.seeds >= self._next:
            self._next += SAY_EVERY
            failed = len(sums.failed)
            print(f"{sums.seeds:,} seeds, {failed} failed", file=sys.stderr, flush=True)


def figures_of(sums: Sums, seed0: int, seconds: float) -> dict[str, Any]:
    """Return the figures of a run as data."""
    return {
        "seed0": seed0,
        "seeds": sums.seeds,
        "seconds": round(seconds, 1),
        "simulated_years": round(sums.simulated_s / YEAR_S, 3),
        "events": sums.events,
        "history_records": sums.records,
        "violations": len(sums.failed),
        "violations_bound_95": 3 / max(sums.seeds, 1) if not sums.failed else None,
        "failed": {str(seed): text for seed, text in sorted(sums.failed.items())},
        "invariants": sorted(
            name for name, layers in CHECKED_BY.items() if "simulation" in layers
        ),
        "never_met": [name for name in RARE if not sums.sometimes[name]],
        "sometimes": dict(sorted(sums.sometimes.items())),
    }


def page(figures: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the printed page."""
    seeds, last = figures["seeds"], figures["seed0"] + figures["seeds"] - 1
    yield f"seeds            {seeds:,} ({figures['seed0']} to {last})"
    yield f"simulated        {figures['simulated_years']:.2f} years"
    yield f"events           {figures['events']:,} in {figures['seconds']:,.0f} s"
    yield f"invariants       {', '.join(figures['invariants'])}"
    bound = figures["violations_bound_95"]
    zero = "" if bound is None else f" (95 %: below {bound:.1e} a seed)"
    yield f"violations       {figures['violations']}{zero}"
    for seed, text in list(figures["failed"].items())[:20]:
        yield f"  {seed}: {text[-300:]}"
    never = figures["never_met"]
    yield f"rare states      {len(RARE) - len(never)} of {len(RARE)} met"
    for name in never:
        yield f"  never: {name}"
    yield "sometimes"
    for name, count in figures["sometimes"].items():
        yield f"  {count:>12,}  {name}"


if __name__ == "__main__":
    sys.exit(main())
