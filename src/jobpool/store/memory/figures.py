"""Means and ranks over what attempts have used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import NamedTuple

from jobpool.core.job import JobState
from jobpool.store.memory.row import Row
from jobpool.store.records import FigureRow, KindRecord

_ATTEMPTS_MAX = 1000
_newness = attrgetter("finished_at_ms")


class Use(NamedTuple):
    """What one attempt has used; None: nobody has measured it."""

    finished_at_ms: int
    peak_rss_bytes: int | None
    duration_s: float | None


def uses_of(row: Row) -> list[Use]:
    """Return what the ended attempts of a job have used."""
    uses = [
        Use(
            tried.shown.finished_at_ms,
            tried.shown.peak_rss_bytes,
            tried.shown.duration_s,
        )
        for tried in row.tried
    ]
    if row.state is JobState.SUCCEEDED and row.finished_at_ms is not None:
        uses.append(
            Use(row.finished_at_ms, row.ended.peak_rss_bytes, row.ended.duration_s)
        )
    return uses


def mean_of(values: Iterable[float]) -> float | None:
    """Return the mean; None: there is no value."""
    found = list(values)
    return math.fsum(found) / len(found) if found else None


def figures_of(
    kind: str, pool: str, uses: Sequence[Use], published: KindRecord | None
) -> FigureRow:
    """Return the figures of one kind's newest attempts, by nearest rank.

    Args:
        kind: the kind.
        pool: its pool.
        uses: of all its attempts, in any order.
        published: what a supervisor said of the kind, if one knows it.
    """
    newest = nlargest(_ATTEMPTS_MAX, uses, key=_newness)
    sizes = sorted(
        (use.peak_rss_bytes for use in newest if use.peak_rss_bytes is not None),
        reverse=True,
    )
    durations = sorted(
        (use.duration_s for use in newest if use.duration_s is not None), reverse=True
    )
    rss_n, duration_n = len(sizes), len(durations)
    return FigureRow(
        kind=kind,
        pool=pool,
        attempts=len(newest),
        rss_p50_bytes=sizes[rss_n // 2] if sizes else None,
        rss_p99_bytes=sizes[rss_n // 100] if sizes else None,
        rss_max_bytes=sizes[0] if sizes else None,
        memory_bytes=None if published is None else published.memory_bytes,
        duration_p50_s=durations[duration_n // 2] if durations else None,
        duration_p99_s=durations[duration_n // 100] if durations else None,
        duration_max_s=durations[0] if durations else None,
        timeout_s=None if published is None else published.timeout_s,
    )
