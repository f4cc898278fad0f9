"""What all attempts of the last weeks have used, by kind, for people and ``--json``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from jobpool.cli.output import heading, print_table, seconds, size
from jobpool.core.rules.sketch import Counts, Measure, Quantile, quantile
from jobpool.store.records import SketchRow

_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class KindUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempts of one kind in one pool have used."""

    kind: str
    pool: str
    attempts: int
    ended_early: int
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
            "ended_early": self.ended_early,
            **{f"rss_{name}_bytes": round(one.value) for name, one in rss},
            **{f"duration_{name}_s": one.value / 1000 for name, one in ran},
            "at_least": [
                *(f"rss_{name}_bytes" for name, one in rss if one.is_least),
                *(f"duration_{name}_s" for name, one in ran if one.is_least),
            ],
        }


def usage_of(rows: Iterable[SketchRow]) -> list[KindUsage]:
    """Return the usage of each kind and pool, all weeks together."""
    attempts: defaultdict[tuple[str, str], Counter[tuple[Measure, int]]]
    attempts = defaultdict(Counter)
    censored: Counter[tuple[str, str, Measure, int]] = Counter()
    for row in rows:
        attempts[row.kind, row.pool][row.measure, row.bucket] += row.attempts
        censored[row.kind, row.pool, row.measure, row.bucket] += row.censored
    found = []
    for (kind, pool), counts in sorted(attempts.items()):
        sketches: dict[Measure, dict[int, Counts]] = {one: {} for one in Measure}
        for (measure, bucket), count in counts.items():
            cut = censored[kind, pool, measure, bucket]
            sketches[measure][bucket] = Counts(count, cut)
        ran = sketches[Measure.DURATION].values()
        found.append(
            KindUsage(
                kind=kind,
                pool=pool,
                attempts=sum(one.attempts for one in ran),
                ended_early=sum(one.censored for one in ran),
                rss_bytes=_quantiles(sketches[Measure.MEMORY]),
                duration_ms=_quantiles(sketches[Measure.DURATION]),
            )
        )
    return found


def _quantiles(counts: Mapping[int, Counts]) -> dict[str, Quantile]:
    found = {name: quantile(counts, share) for name, share in _SHARES.items()}
    return {name: one for name, one in found.items() if one is not None}


def print_usage(rows: Sequence[KindUsage]) -> None:
    """Print a table; nothing has been written before the first half minute."""
    if not rows:
        return
    heading("USAGE (all attempts of the last weeks, within 5 %; +: it would be more)")
    numbers = ("ATTEMPTS", "CUT", "RSS P50", "P90", "P99", "RAN P50", "P90 ", "P99 ")
    print_table(
        ("KIND", "POOL", *numbers),
        (
            (
                row.kind,
                row.pool,
                row.attempts,
                row.ended_early,
                *(_shown(row.rss_bytes, name, memory=True) for name in _SHARES),
                *(_shown(row.duration_ms, name, memory=False) for name in _SHARES),
            )
            for row in rows
        ),
        right=numbers,
    )


def _shown(quantiles: Mapping[str, Quantile], name: str, *, memory: bool) -> str | None:
    one = quantiles.get(name)
    if one is None:
        return None
    text = size(round(one.value)) if memory else seconds(one.value / 1000)
    return f"{text}+" if one.is_least else text
