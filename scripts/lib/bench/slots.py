"""Many slots with default limits: how many are used, by jobs that use far less."""

from __future__ import annotations

from collections.abc import Iterator

from bench.report import US, Sample
from bench.running import measure
from bench.sections import Scale

CASES = ((64, 0), (200, 30))
"""Slots, and MiB that each job holds."""
HELD_MS = 5000
TURNS = 3
"""Jobs of each slot."""


def samples(scale: Scale, number: int) -> Iterator[Sample]:
    """Measure one round."""
    del scale
    for slots, mib in CASES:
        wish = {
            "scenario": "hold",
            "workers": slots,
            "count": TURNS * slots,
            "mib": mib,
            "ms": HELD_MS,
        }
        for unit, value in measure("slots", wish).items():
            what = f"io={slots}, {mib} MiB each: {unit}"
            yield Sample("slots", what, US, number, value)
