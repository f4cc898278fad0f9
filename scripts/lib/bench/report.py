"""Results as ratios, as a Markdown table and as JSON. Pure.

Ratios are taken within one round, where all systems met the same noise, and only then
summarized; a ratio of two medians would compare different minutes of the machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

US = "jobpool"
OF = {"jobpool-postgresql": ("pgqueuer", "pgqueuer-batched")}
"""Which of our variants is compared with which peers; `US` with all others."""


class Sample(NamedTuple):
    """One figure of one round."""

    section: str
    what: str
    """The case and the unit, such as ``no-op: jobs/s``."""
    system: str
    round: int
    value: float


class Spread(NamedTuple):
    """Minimum, median and maximum over the rounds."""

    low: float
    middle: float
    high: float


class Bound(NamedTuple):
    """A promised bound of a ratio or, without a peer, of the figure itself."""

    section: str
    what: str
    system: str
    peer: str | None
    least: float | None = None
    most: float | None = None


BOUNDS = (
    Bound("throughput", "no-op: jobs/s", US, "celery", least=20),
    Bound("throughput", "no-op: jobs/s", US, "huey", least=5),
    Bound("throughput", "no-op: jobs/s", US, "pebble", least=1),
    Bound("throughput", "no-op: jobs/s", US, "limit", least=0.5),
    Bound("throughput", "no-op: jobs/s", "jobpool-postgresql", "pgqueuer", least=10),
    Bound(
        "throughput", "no-op: jobs/s", "jobpool-postgresql", "pgqueuer-batched", least=1
    ),
    Bound("metrics", "no-op, scraped each second: over not", US, None, least=0.97),
    Bound("traces", "no-op, traces of 1 % sent: over none", US, None, least=0.95),
    Bound("throughput", "fresh child: jobs/s", US, "rq", least=5),
    Bound("fresh", "fresh child: jobs/s", US, "rq", least=2),
    Bound("throughput", "busy 50 ms: % of workers in handlers", US, None, least=98),
    Bound("throughput", "16 sleep 100 ms: jobs/s", US, None, least=155),
    Bound("pick-up", "pick-up: p50 ms", US, None, most=1),
    Bound("pick-up", "pick-up: p99 ms", US, None, most=3),
    Bound("enqueue", "bulk: jobs/s", US, None, least=100_000),
    Bound("enqueue", "16 producers: errors", US, None, most=0),
    Bound("enqueue", "16 producers: worst ms", US, None, most=100),
    Bound("growth", "lease of 100, times that of 1,000 queued", US, None, most=1.2),
    Bound(
        "growth", "supervisor CPU a job, 64 slots, times that of 2", US, None, most=1.2
    ),
    Bound(
        "start",
        "an empty application: s beyond 1 x the bare import",
        US,
        None,
        most=0.35,
    ),
    Bound(
        "start", "numpy and pandas: s beyond 1.2 x the bare import", US, None, most=0.4
    ),
    Bound(
        "start",
        "numpy and pandas: idle PSS with 20 slots, over older",
        US,
        None,
        most=0.7,
    ),
    Bound("idle", "20 slots: % of a core", US, None, most=0.5),
    *(
        Bound("fairness", what, system, None, least=least, most=most)
        for what, least, most in (
            ("100 tenants: over plain", 0.9, None),
            ("claim of 64 beside 10,000 tenants: times plain", None, 3),
        )
        for system in (US, "jobpool-postgresql")
    ),
    Bound(
        "many",
        "8 supervisors: jobs/s, times that of 2",
        "jobpool-postgresql",
        None,
        least=0.95,
    ),
    Bound(
        "many",
        "8 supervisors: CPU a job, times that of 2",
        "jobpool-postgresql",
        None,
        most=1.15,
    ),
    *(
        Bound("flows", what, system, None, least=least, most=most)
        for what, least, most in (
            ("storing 100,000 members: over bulk enqueue", 0.5, None),
            ("fan-in of 10,000: ends, over plain", 0.7, None),
            ("fan-in of 10,000: lease and settle, over plain", 0.7, None),
            ("a hop of a chain: times a pick-up", None, 1.5),
            ("claim of 64 beside 100,000 open flows: times plain", None, 1.1),
        )
        for system in (US, "jobpool-postgresql")
    ),
    *(
        Bound("quotas", what, system, None, least=least, most=most)
        for what, least, most in (
            ("no quotas in use: over older", 0.98, None),
            ("a cap that does not bind, 1 claimers: over plain", 0.8, None),
            ("a cap that does not bind, 8 claimers: over plain", 0.8, None),
            ("a cap that does not bind, 32 claimers: over plain", 0.8, None),
            ("a rate that does not bind, 1 claimers: over plain", 0.8, None),
            ("a rate that does not bind, 8 claimers: over plain", 0.8, None),
            ("a rate that does not bind, 32 claimers: over plain", 0.8, None),
            ("claim of 64 before 1,000,000 blocked: times plain", None, 2),
            ("claim of 64 before 10,000 blocked buckets: times plain", None, 2),
            ("binding cap: % of what the cap allows", 90, None),
            ("binding cap: at once, of 8", None, 8),
            ("binding rate: over any window", None, 0),
            ("binding rate: % of the rate used", 98, None),
            ("asking: permits/s", 1000, None),
        )
        for system in (US, "jobpool-postgresql")
    ),
)


def spread(values: Iterable[float]) -> Spread:
    """Summarize values; there must be at least one."""
    ranked = sorted(values)
    return Spread(ranked[0], statistics.median(ranked), ranked[-1])


def by_system(samples: Iterable[Sample]) -> dict[tuple[str, str], dict[str, Spread]]:
    """Return the spread of each figure, by section and what, then by system."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for each in samples:
        of = found.setdefault((each.section, each.what), {})
        of.setdefault(each.system, []).append(each.value)
    return {
        key: {system: spread(values) for system, values in of.items()}
        for key, of in found.items()
    }


def ratio(
    samples: Iterable[Sample], section: str, what: str, system: str, peer: str
) -> Spread | None:
    """Return a system's figure over a peer's, within rounds; None: not measured."""
    values: dict[str, dict[int, float]] = {system: {}, peer: {}}
    for each in samples:
        if (each.section, each.what) == (section, what) and each.system in values:
            values[each.system][each.round] = each.value
    both = [
        ours / theirs
        for number, ours in values[system].items()
        if (theirs := values[peer].get(number))
    ]
    return spread(both) if both else None


def ours_for(system: str) -> str:
    """Return the variant of ours that a system is compared with."""
    return next((ours for ours, peers in OF.items() if system in peers), US)


def table(samples: list[Sample], missing: Mapping[str, str]) -> Iterator[str]:
    """Return all figures in Markdown, then what was not measured."""
    yield "| figure | system | min / median / max | jobpool / system |"
    yield "|---|---|---|---|"
    for (section, what), of in by_system(samples).items():
        for system, found in of.items():
            ours = ours_for(system)
            times = (
                None
                if system == ours or system in OF
                else ratio(samples, section, what, ours, system)
            )
            cell = "" if times is None else written(times)
            name = "limit program" if system == "limit" else system
            yield f"| {section}: {what} | {name} | {written(found)} | {cell} |"
    for what, why in missing.items():
        yield f"not measured: {what}: {why}"


def verdicts(
    samples: list[Sample], bounds: Iterable[Bound] = BOUNDS
) -> Iterator[tuple[Bound, Spread | None, bool | None]]:
    """Check medians against the bounds; None where it was not measured."""
    spreads = by_system(samples)
    for bound in bounds:
        found = (
            spreads.get((bound.section, bound.what), {}).get(bound.system)
            if bound.peer is None
            else ratio(samples, bound.section, bound.what, bound.system, bound.peer)
        )
        holds = found and (
            (bound.least is None or found.middle >= bound.least)
            and (bound.most is None or found.middle <= bound.most)
        )
        yield bound, found, holds


def judged(samples: list[Sample]) -> Iterator[str]:
    """Return a line for each bound of which something was measured."""
    for bound, found, holds in verdicts(samples):
        if found is None:
            continue
        wanted = f">= {bound.least:,g}" if bound.most is None else f"<= {bound.most:g}"
        beside = f" over {bound.peer}" if bound.peer else ""
        yield (
            f"{'met   ' if holds else 'MISSED'} {bound.section}: {bound.what}, "
            f"{bound.system}{beside}: {written(found)}, wanted {wanted}"
        )


def written(found: Spread) -> str:
    """Return a spread with three significant digits."""
    return " / ".join(_digits(value) for value in found)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004


def as_json(
    samples: list[Sample], missing: Mapping[str, str], also: Mapping[str, object]
) -> dict[str, object]:
    """Return all results, single values included."""
    return {
        "samples": [each._asdict() for each in samples],
        "not measured": dict(missing),
        "bounds": [
            {
                **bound._asdict(),
                "found": found._asdict() if found else None,
                "holds": holds,
            }
            for bound, found, holds in verdicts(samples)
        ],
        "jobpool alone, by scripts/figures": dict(also),
    }
