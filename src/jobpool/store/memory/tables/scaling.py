"""How many supervisors each pool needs, as the view of the databases says. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from jobpool.core.jobs.job import JobState
from jobpool.store.memory.tables.rows import Row
from jobpool.store.records.reading import ScalingRow, WaitingRow
from jobpool.store.records.runs import Run
from jobpool.store.statements.schedules import StoredSchedule
from jobpool.store.statements.validation import STORE_PAUSE


def scaling_of(
    jobs: Collection[Row],
    *,
    runs: Iterable[Run],
    waiting: Iterable[WaitingRow],
    schedules: Iterable[StoredSchedule],
    known: Collection[str],
    stopped: Collection[tuple[str, str]],
    opened: Collection[str],
    now_ms: int,
) -> list[ScalingRow]:
    """Return what each pool needs, by name.

    Args:
        jobs: all of them.
        runs: of supervisors, ended ones as well.
        waiting: runnable jobs by kind.
        schedules: all of them.
        known: kinds that a supervisor has published.
        stopped: what is paused.
        opened: kinds whose breaker is open: one job of each may try.
        now_ms: the store's clock.
    """
    slots = _slots(runs)
    running = Counter(job.new.pool for job in jobs if job.state is JobState.LEASED)
    due: Counter[str] = Counter()
    for schedule in schedules:
        next_ms = schedule.next_at_ms
        due[schedule.pool] += next_ms is not None and next_ms <= now_ms
    if STORE_PAUSE not in stopped:
        for row in waiting:
            if row.known and not row.paused:
                free = row.jobs - row.blocked
                due[row.pool] += min(1, free) if row.kind in opened else free
        for job in jobs:
            kind, pool = job.new.kind, job.new.pool
            is_paused = ("kind", kind) in stopped or ("pool", pool) in stopped
            is_due = job.state is JobState.PENDING and job.run_at_ms <= now_ms
            due[pool] += is_due and kind in known and not is_paused
    return [
        ScalingRow(
            pool=pool,
            running=running[pool],
            due=due[pool],
            slots=(each := slots.get(pool, 1)),
            wanted_replicas=-(-(running[pool] + due[pool]) // each),
        )
        for pool in sorted({*slots, *(+running), *(+due)})
    ]


def _slots(runs: Iterable[Run]) -> dict[str, int]:
    """Return the slots of the newest supervisor that has served each pool."""
    oldest_first = sorted(
        runs, key=lambda run: (run.ended_at_ms is None, run.started_at_ms)
    )
    return {
        pool: max(1, int(str(text).rpartition("..")[2]))
        for run in oldest_first
        for pool, text in run.pools.items()
    }
