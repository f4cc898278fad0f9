"""Records of counts and figures, for those who read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

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


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that share a kind, a state, and how their last attempt ended."""

    kind: str
    state: str
    reason: str | None
    outcome: str | None
    error_class: str | None
    jobs: int
