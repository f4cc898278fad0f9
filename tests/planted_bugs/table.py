"""Every planted bug of every layer, and what it took to see it the last time.

Theory of operation. Each layer has its own list, beside what it changes: the simulation
patches the code that it runs, chaos and the test files run a changed copy, the crash
points change an operation. Here they form one table. `scripts/planted` plants them in
turn and writes the results to table.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from chaos.planting import SEED, STORM_MINUTES
from chaos.planting import find as find_in_chaos
from chaos.plants import PLANTS
from planted_bugs.bug import Bug, Layer, Promise
from planted_bugs.crashing import CRASH_BUGS
from planted_bugs.suites import SUITE_BUGS, is_seen
from simulation.planted import BUGS, planted
from simulation.simulate import run_seed

RECORD = Path(__file__).with_name("table.md")
MISSED = "not seen"
STORMS = 3
"""So many chaos may take, each of another seed."""
_HEAD = (
    "# Planted bugs",
    "",
    "Each is planted on purpose, breaks a promise of the manual, and must be seen.",
    "Written by `scripts/planted`.",
    "",
    "| bug | breaks | seen by | as | after |",
    "|---|---|---|---|---|",
)


class Found(NamedTuple):
    """How a bug was seen."""

    rule: str
    """The invariant that was broken, or the tests that failed."""
    after: str
    """What it took."""

    @property
    def seeds(self) -> int:
        """Return how many seeds it took; 0: it was not seeds."""
        number, _, unit = self.after.partition(" ")
        return int(number) if unit.startswith("seed") else 0


def all_bugs() -> list[Bug]:
    """Return every bug, layer by layer."""
    return [
        *(Bug(n, bug.promise, Layer.SIMULATION) for n, bug in BUGS.items()),
        *(Bug(plant.name, plant.promise, Layer.CHAOS) for plant in PLANTS),
        *(Bug(bug.name, bug.promise, Layer.CRASH_POINTS) for bug in CRASH_BUGS),
        *(Bug(bug.name, bug.promise, Layer.SUITE) for bug in SUITE_BUGS),
    ]


def hunt(bug: Bug, *, seeds: int) -> Found | None:
    """Plant a bug and let its layer search for it. Return None if it sees nothing.

    Args:
        bug: the bug.
        seeds: so many lives the simulation may take.
    """
    match bug.layer:
        case Layer.SIMULATION:
            return _simulate(bug.name, seeds)
        case Layer.CHAOS:
            (plant,) = (plant for plant in PLANTS if plant.name == bug.name)
            for number in range(STORMS):
                if seen := plant.breaks & set(find_in_chaos(plant, SEED + number)):
                    storm_s = round(60 * STORM_MINUTES * (number + 1))
                    return Found(", ".join(sorted(seen)), f"{storm_s} s of storm")
            return None
        case Layer.CRASH_POINTS:
            (crash,) = (crash for crash in CRASH_BUGS if crash.name == bug.name)
            trials = crash.trials()
            return None if trials is None else Found("I1, I3", _many(trials, "trial"))
        case Layer.SUITE:
            (one,) = (one for one in SUITE_BUGS if one.name == bug.name)
            return Found(f"`{one.tests}`", "one run") if is_seen(one) else None


def _simulate(name: str, seeds: int) -> Found | None:
    with planted(name):
        for seed in range(seeds):
            if found := run_seed(seed).found:
                return Found(found[0].rule, _many(seed + 1, "seed"))
    return None


def _many(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def write(found: Mapping[str, Found | None], bugs: Sequence[Bug]) -> None:
    """Write the record."""
    RECORD.write_text("\n".join([*_HEAD, *_lines(found, bugs), ""]), encoding="utf-8")


def _lines(found: Mapping[str, Found | None], bugs: Sequence[Bug]) -> Iterator[str]:
    for bug in bugs:
        seen = found.get(bug.name) or Found(MISSED, "")
        cells = (bug.name, bug.promise, bug.layer, seen.rule, seen.after)
        yield f"| {' | '.join(cells)} |"


def read() -> tuple[list[Bug], dict[str, Found]]:
    """Return the bugs that the record names, and what it says of each."""
    bugs, found = [], {}
    for line in RECORD.read_text(encoding="utf-8").splitlines()[len(_HEAD) :]:
        name, promise, layer, rule, after = (
            cell.strip() for cell in line.strip("|").split("|")
        )
        bugs.append(Bug(name, Promise(promise), Layer(layer)))
        if rule != MISSED:
            found[name] = Found(rule, after)
    return bugs, found
