"""What attempts have used, and how those ended that did not succeed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from jobpool.core.jobs.job import JobState
from jobpool.store.memory.tables.rows import Row
from jobpool.store.records.reading import DepthRow, EndRow, FigureRow, SampleRow
from jobpool.store.records.runs import KindRecord

ATTEMPTS_MAX = 1000
_COUNTED = frozenset(
    {
        *(JobState.PENDING, JobState.RUNNABLE, JobState.WAITING, JobState.LEASED),
        *(JobState.DEAD, JobState.QUARANTINED),
    }
)
"""Figures are those of so many newest attempts of a kind."""
_SAMPLED_MAX = 100_000
newness = attrgetter("finished_at_ms")


class Use(NamedTuple):
    """What one attempt has used; None: it was not measured."""

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
        published: the kind as a supervisor has published it, if any.
    """
    newest = nlargest(ATTEMPTS_MAX, uses, key=newness)
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


def ends_of(row: Row) -> Iterator[EndRow]:
    """Yield the attempts of a job that did not succeed, oldest first."""
    for tried in row.tried:
        one = tried.shown
        yield EndRow(
            job_id=row.id,
            kind=row.new.kind,
            pool=row.new.pool,
            state=row.state.value,
            tries=row.attempt,
            attempt=one.attempt,
            outcome=one.outcome.value,
            reason=one.reason,
            error_class=one.error_class,
            finished_at_ms=one.finished_at_ms,
            duration_s=one.duration_s,
            peak_rss_bytes=one.peak_rss_bytes,
        )


def depths_of(rows: Iterable[Row]) -> list[DepthRow]:
    """Count jobs that have not ended, and those that people must look at."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    for row in rows:
        if row.state in _COUNTED:
            new = row.new
            band = "low" if new.priority < 0 else "high"
            band = band if new.priority else "normal"
            found[new.kind, new.pool, row.state.value, band] += 1
    return [
        DepthRow(kind=kind, pool=pool, state=state, band=band, jobs=jobs)
        for (kind, pool, state, band), jobs in sorted(found.items())
    ]


def tenant_depths_of(rows: Iterable[Row]) -> list[tuple[str, str, int]]:
    """Count unfinished jobs by tenant and state, the most first."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        tenant = row.new.tenant
        if tenant is not None and row.finished_at_ms is None:
            found[tenant, row.state.value] += 1
    most = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [(tenant, state, jobs) for (tenant, state), jobs in most]


def samples_of(newest_first: Iterable[Row]) -> list[SampleRow]:
    """Return the newest successes of each kind and pool."""
    newest: defaultdict[tuple[str, str], list[SampleRow]] = defaultdict(list)
    for row in islice(newest_first, _SAMPLED_MAX):
        peak_bytes, ran_s = row.ended.peak_rss_bytes, row.ended.duration_s
        rows = newest[row.new.kind, row.new.pool]
        is_one = row.state is JobState.SUCCEEDED and len(rows) < ATTEMPTS_MAX
        if is_one and peak_bytes and ran_s is not None:
            rows.append(
                SampleRow(
                    kind=row.new.kind,
                    pool=row.new.pool,
                    peak_rss_bytes=peak_bytes,
                    duration_s=ran_s,
                    payload_bytes=len(row.new.payload),
                )
            )
    return [one for key in sorted(newest) for one in reversed(newest[key])]
