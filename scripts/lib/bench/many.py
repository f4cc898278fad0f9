"""How far one store goes: the same backlog, and more and more supervisors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bench.report import US, Sample
from bench.running import measure
from bench.sections import Scale

ON_POSTGRES = f"{US}-postgresql"
SUPERVISORS: Mapping[str, tuple[int, ...]] = {
    ON_POSTGRES: (1, 2, 4, 8, 16),
    US: (1, 2, 4),
}
SLOTS = 2
FEW = 2
"""What the others are compared with."""
RATIOS = {"jobs/s": "jobs/s", "us of CPU a job": "CPU a job"}


def samples(scale: Scale, number: int) -> Iterator[Sample]:
    """Measure one round."""
    for system, counts in SUPERVISORS.items():
        found = {}
        for count in counts if number % 2 else counts[::-1]:
            wish = {
                "scenario": "many",
                "supervisors": count,
                "workers": SLOTS,
                "count": 3 * scale.jobs,
            }
            found[count] = measure(system.replace(US, "many"), wish)
        for count in counts:
            what = f"{count} supervisors"
            for unit, value in found[count].items():
                yield Sample("many", f"{what}: {unit}", system, number, value)
            for unit, name in RATIOS.items():
                ratio = found[count][unit] / found[FEW][unit]
                beside = f"{what}: {name}, times that of {FEW}"
                yield Sample("many", beside, system, number, ratio)
