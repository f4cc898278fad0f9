"""Records of counts and figures, for those who read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from jobpool.core.jobs.job import Job, JobState
from jobpool.core.rules.usage.sketch import Counts, Measure


class UnfinishedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Unfinished jobs of one kind and pool."""

    kind: str
    pool: str
    due: int
    """Jobs that are leased or due."""
    later: int
    """Jobs that are not due yet."""


class StatRow(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and means of one pool, kind and state."""

    pool: str
    kind: str
    state: str
    jobs: int
    mean_wait_s: float | None
    mean_run_s: float | None
    blocked: int = 0
    """Of them: runnable ones that wait for a quota."""


def by_time(
    stored: Iterable[StatRow],
    overdue: Mapping[tuple[str, str], int],
    blocked: Mapping[tuple[str, str], int],
) -> list[StatRow]:
    """Return counts by what is true now: jobs whose time has come are runnable.

    Only a supervisor stores that they are: without one they stay pending.

    Args:
        stored: counts by stored state.
        overdue: pending jobs whose time has come, by pool and kind.
        blocked: runnable jobs that wait for a quota, by pool and kind.
    """
    rows = {(row.pool, row.kind, row.state): row for row in stored}
    for (pool, kind), jobs in overdue.items():
        later = rows.pop((pool, kind, JobState.PENDING), None)
        if later is not None and later.jobs > jobs:
            left = msgspec.structs.replace(later, jobs=later.jobs - jobs)
            rows[pool, kind, JobState.PENDING] = left
        none = StatRow(
            pool=pool,
            kind=kind,
            state=JobState.RUNNABLE,
            jobs=0,
            mean_wait_s=None,
            mean_run_s=None,
        )
        due = rows.get((pool, kind, JobState.RUNNABLE), none)
        rows[pool, kind, JobState.RUNNABLE] = msgspec.structs.replace(
            due, jobs=due.jobs + jobs
        )
    return [
        msgspec.structs.replace(row, blocked=blocked.get((row.pool, row.kind), 0))
        if row.state == JobState.RUNNABLE
        else row
        for _, row in sorted(rows.items())
    ]


class FigureRow(msgspec.Struct, frozen=True, kw_only=True):
    """Observed use of one kind beside its limits, over its newest 1,000 attempts."""

    kind: str
    pool: str
    attempts: int
    rss_p50_bytes: int | None
    rss_p99_bytes: int | None
    rss_max_bytes: int | None
    memory_bytes: int | None
    """The limit as published by a supervisor; None: no supervisor knows the kind."""
    duration_p50_s: float | None
    duration_p99_s: float | None
    duration_max_s: float | None
    timeout_s: float | None


class SketchRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Attempts of a kind that have used about the same (`core.rules.usage.sketch`)."""

    week: int = 0
    """By the store's clock, counted from 1970."""
    kind: str
    pool: str
    measure: Measure
    bucket: int
    attempts: int
    censored: int = 0
    """Of them: those that were ended there, and would have used more."""


def merged(
    rows: Iterable[SketchRow],
) -> defaultdict[tuple[str, str, Measure], dict[int, Counts]]:
    """Return the sketch of each kind, pool and measure, all weeks together."""
    sketches: defaultdict[tuple[str, str, Measure], dict[int, Counts]]
    sketches = defaultdict(dict)
    for row in rows:
        counts = sketches[row.kind, row.pool, row.measure]
        before = counts.get(row.bucket, Counts(0))
        counts[row.bucket] = Counts(
            before.attempts + row.attempts, before.censored + row.censored
        )
    return sketches


class ScalingRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many supervisors one pool needs."""

    pool: str
    running: int
    due: int
    """What could begin at once: not what a quota, a pause, a breaker or time holds
    back. Ticks that are due count as well."""
    slots: int
    """Of one supervisor: the newest that has served the pool; 1: none has."""
    wanted_replicas: int
    """Supervisors with so many slots, for all that runs or is due; may be 0."""


class DepthRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Jobs of one kind, pool, state and band of priorities."""

    kind: str
    pool: str
    state: str
    band: str
    """``low``: below 0; ``normal``; ``high``: above 0."""
    jobs: int


class SampleRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one successful attempt has used, beside the size of its arguments."""

    kind: str
    pool: str
    peak_rss_bytes: int
    duration_s: float
    payload_bytes: int
    """As stored: encrypted arguments take a little more."""


class EndRow(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that did not succeed, and what has become of its job since."""

    job_id: int
    kind: str
    pool: str
    state: str
    """The job's, now."""
    tries: int
    """Attempts of the job that have begun so far, later ones included."""
    attempt: int
    outcome: str
    reason: str | None
    error_class: str | None
    finished_at_ms: int
    duration_s: float | None
    peak_rss_bytes: int | None


MINUTE_MS = 60_000
FAILED_MAX = 100_000
"""So many of the last attempts that did not succeed are counted by minute."""


class MinuteRow(msgspec.Struct, frozen=True, kw_only=True):
    """What has ended in one minute."""

    minute: int
    """Minutes since 1970."""
    succeeded: int
    """Jobs."""
    failed: int
    """Attempts that did not succeed, of whatever jobs."""


class WaitingRow(msgspec.Struct, frozen=True, kw_only=True):
    """Runnable jobs of one kind."""

    pool: str
    kind: str
    jobs: int
    oldest_age_s: float
    known: bool
    """A supervisor has published this kind."""
    paused: bool
    blocked: int = 0
    """Of them: those that wait for a quota."""


class Spot(NamedTuple):
    """Where a look at jobs has stopped: before the jobs that come after this one."""

    at_ms: int
    """When it ended, if jobs are looked at by their end; else 0."""
    id: int


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at jobs has found."""

    jobs: tuple[Job, ...]
    spot: Spot | None
    """Where it has stopped; None: there are no more jobs to look at."""


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that share a kind, a state, and how their last attempt ended."""

    kind: str
    state: str
    reason: str | None
    outcome: str | None
    error_class: str | None
    jobs: int
