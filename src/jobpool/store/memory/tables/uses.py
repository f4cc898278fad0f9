"""What attempts have used, how they have ended, and what waits, counted."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from jobpool.core.jobs.job import JobState
from jobpool.store.memory.tables.jobs import JobTable
from jobpool.store.memory.tables.ordered_set import id_of, oldest_ms, time_of
from jobpool.store.memory.tables.rows import Row
from jobpool.store.records.reading import (
    MINUTE_MS,
    DepthRow,
    EndRow,
    FigureRow,
    MinuteRow,
    SampleRow,
    StatRow,
)
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


def minutes_of(rows: Iterable[Row], since_ms: int) -> list[MinuteRow]:
    """Count what has ended by minute, from the one with a moment on."""
    succeeded: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    for row in rows:
        if row.state is JobState.SUCCEEDED and row.finished_at_ms is not None:
            succeeded[row.finished_at_ms // MINUTE_MS] += 1
        failed.update(one.finished_at_ms // MINUTE_MS for one in ends_of(row))
    return [
        MinuteRow(minute=minute, succeeded=succeeded[minute], failed=failed[minute])
        for minute in sorted({*succeeded, *failed})
        if minute >= since_ms // MINUTE_MS
    ]


def stats_of(rows: Iterable[Row]) -> list[StatRow]:
    """Return counts and mean times by pool, kind and stored state."""
    groups: defaultdict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.new.pool, row.new.kind, row.state.value].append(row)
    return [
        StatRow(
            pool=pool,
            kind=kind,
            state=state,
            jobs=len(of),
            mean_wait_s=mean_of(
                (row.begun.started_at_ms - row.run_at_ms) / 1000
                for row in of
                if row.begun.started_at_ms is not None
            ),
            mean_run_s=mean_of(
                row.ended.duration_s for row in of if row.ended.duration_s is not None
            ),
        )
        for (pool, kind, state), of in groups.items()
    ]


class Due(NamedTuple):
    """Due jobs of a pool and kind."""

    jobs: int
    oldest_ms: int
    """When the first of them was due."""

    def plus(self, other: Due) -> Due:
        """Return both together."""
        return Due(self.jobs + other.jobs, min(self.oldest_ms, other.oldest_ms))


def runnable_of(jobs: JobTable) -> dict[tuple[str, str], Due]:
    """Return what is runnable, by pool and kind."""
    queues = jobs.runnable.items()
    return {of: Due(len(queue), oldest_ms(queue)) for of, queue in queues if queue}


def overdue_of(jobs: JobTable, now_ms: int) -> dict[tuple[str, str], Due]:
    """Return pending jobs whose time has come, by pool and kind."""
    found: dict[tuple[str, str], Due] = {}
    for rank in jobs.pending:
        if (at_ms := time_of(rank)) <= now_ms:
            new, one = jobs[id_of(rank)].new, Due(1, at_ms)
            of = new.pool, new.kind
            found[of] = found[of].plus(one) if of in found else one
    return found


def depths_of(rows: Iterable[Row], now_ms: int) -> list[DepthRow]:
    """Count jobs that have not ended, and those that people must look at."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    for row in rows:
        if row.state in _COUNTED:
            new = row.new
            band = "low" if new.priority < 0 else "high"
            band = band if new.priority else "normal"
            found[new.kind, new.pool, _state_now(row, now_ms), band] += 1
    return [
        DepthRow(kind=kind, pool=pool, state=state, band=band, jobs=jobs)
        for (kind, pool, state, band), jobs in sorted(found.items())
    ]


def _state_now(row: Row, now_ms: int) -> str:
    """Return the state of a job: it is runnable once its time has come."""
    is_due = row.state is JobState.PENDING and row.run_at_ms <= now_ms
    return (JobState.RUNNABLE if is_due else row.state).value


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
