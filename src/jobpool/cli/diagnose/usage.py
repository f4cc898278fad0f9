"""What attempts have used, by kind: the newest ones, and all of the last weeks.

The newest are beside their limits, as the view of figures has them. Of all there are
only counts, from which quantiles are read (`core.rules.usage.sketch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from jobpool.cli.output import console, heading, print_table
from jobpool.core.rules.usage.sketch import Counts, Measure, Quantile, quantile
from jobpool.store.records.reading import FigureRow, SketchRow, merged
from jobpool.words.figures import seconds, size

_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_WIDTH = 110
"""Columns of a terminal on which memory and time fit beside each other."""


class KindUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempts of one kind in one pool have used."""

    kind: str
    pool: str
    attempts: int
    cut_short: int
    """Of them: those that were killed, canceled or the like: they needed more."""
    rss_bytes: Mapping[str, Quantile]
    """By share: ``p50`` and the like."""
    duration_ms: Mapping[str, Quantile]

    def as_object(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        rss, ran = self.rss_bytes.items(), self.duration_ms.items()
        return {
            "kind": self.kind,
            "pool": self.pool,
            "attempts": self.attempts,
            "cut_short": self.cut_short,
            **{f"rss_{name}_bytes": round(one.value) for name, one in rss},
            **{f"duration_{name}_s": one.value / 1000 for name, one in ran},
            "at_least": [
                *(f"rss_{name}_bytes" for name, one in rss if one.is_least),
                *(f"duration_{name}_s" for name, one in ran if one.is_least),
            ],
        }


def usage_of(rows: Iterable[SketchRow]) -> list[KindUsage]:
    """Return the usage of each kind and pool, all weeks together."""
    sketches = merged(rows)
    found = []
    for kind, pool in sorted({place[:2] for place in sketches}):
        ran = sketches[kind, pool, Measure.DURATION]
        found.append(
            KindUsage(
                kind=kind,
                pool=pool,
                attempts=sum(one.attempts for one in ran.values()),
                cut_short=sum(one.censored for one in ran.values()),
                rss_bytes=_quantiles(sketches[kind, pool, Measure.MEMORY]),
                duration_ms=_quantiles(ran),
            )
        )
    return found


def _quantiles(counts: Mapping[int, Counts]) -> dict[str, Quantile]:
    found = {name: quantile(counts, share) for name, share in _SHARES.items()}
    return {name: one for name, one in found.items() if one is not None}


def print_figures(rows: Sequence[FigureRow]) -> None:
    """Print what the newest attempts of each kind have used, beside its limits."""
    heading("FIGURES (newest 1,000 attempts of each kind)")
    _print_beside(
        ("KIND", "POOL", "ATTEMPTS"),
        ("RSS P50", "P99", "MAX", "LIMIT"),
        ("RAN P50", "P99 ", "MAX ", "LIMIT "),
        [
            (
                row.kind,
                row.pool,
                row.attempts,
                size(row.rss_p50_bytes),
                size(row.rss_p99_bytes),
                size(row.rss_max_bytes),
                size(row.memory_bytes),
                seconds(row.duration_p50_s),
                seconds(row.duration_p99_s),
                seconds(row.duration_max_s),
                seconds(row.timeout_s),
            )
            for row in rows
        ],
    )


def print_usage(rows: Sequence[KindUsage]) -> None:
    """Print what all attempts have used; nothing before the first has been written."""
    if not rows:
        return
    heading("USAGE (all attempts of about eight weeks, to within 5 %; +: or more)")
    _print_beside(
        ("KIND", "POOL", "ATTEMPTS", "CUT SHORT"),
        ("RSS P50", "P90", "P99"),
        ("RAN P50", "P90 ", "P99 "),
        [
            (
                row.kind,
                row.pool,
                row.attempts,
                row.cut_short,
                *(_shown(row.rss_bytes, name, memory=True) for name in _SHARES),
                *(_shown(row.duration_ms, name, memory=False) for name in _SHARES),
            )
            for row in rows
        ],
    )


def _print_beside(
    names: tuple[str, ...],
    memory: tuple[str, ...],
    time: tuple[str, ...],
    rows: Sequence[tuple[Any, ...]],
) -> None:
    """Print memory and time side by side; on a narrow terminal, in two tables."""
    table = [dict(zip((*names, *memory, *time), row, strict=True)) for row in rows]
    is_wide = console().width >= _WIDTH
    for part in (
        ((*names, *memory, *time),) if is_wide else (names + memory, names + time)
    ):
        print_table(
            part, ([row[name] for name in part] for row in table), right=part[2:]
        )


def _shown(quantiles: Mapping[str, Quantile], name: str, *, memory: bool) -> str | None:
    one = quantiles.get(name)
    if one is None:
        return None
    text = size(round(one.value)) if memory else seconds(one.value / 1000)
    return f"{text}+" if one.is_least else text
