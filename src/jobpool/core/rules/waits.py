"""What jobs that are due wait for, and how much of their time goes there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from jobpool.core.rules.quotas.allot import BucketState
from jobpool.core.rules.run_report import RunReport


class Cause(StrEnum):
    """What a due job waits for."""

    SLOTS = "slots"
    """A free slot: nothing else holds it back."""
    QUOTA = "quota"
    BREAKER = "breaker"
    """A quota's service is down."""
    BUDGET = "budget"
    """A budget of retries."""
    PAUSE = "pause"
    MEMORY = "memory"
    """Memory on every host that serves its pool."""
    SUSPECTS = "suspects"
    CRASHES = "crashes"
    """Its kind crashes, and is tried one job at a time."""
    UNKNOWN = "unknown kind"
    """No supervisor knows its kind."""


WAITS_SLOT_MS = 300_000
"""They are kept by five minutes."""
WAITS_KEPT_MS = 86_400_000
HELD_HERE = frozenset({Cause.MEMORY, Cause.SUSPECTS, Cause.CRASHES, Cause.QUOTA})
"""What supervisors report as holding a pool or a kind."""


class Waiting(NamedTuple):
    """Due jobs of a kind."""

    kind: str
    pool: str
    jobs: int
    known: bool
    paused: bool


class WaitRow(NamedTuple):
    """How long jobs of a kind have waited for one thing, all of them together."""

    kind: str
    pool: str
    cause: str
    job_s: float


def cause_of(bucket: BucketState, now_ms: int) -> Cause:
    """Return why a bucket has no room now."""
    limit, breaker = bucket.limit, bucket.breaker.at(now_ms)
    if (limit.closed_until_ms or 0) > now_ms:
        return Cause.PAUSE
    if limit.budget is not None:
        return Cause.BUDGET
    if limit.breaker is not None and (breaker.is_open or breaker.is_probed):
        return Cause.BREAKER
    return Cause.QUOTA


def waits_of(
    waiting: Iterable[Waiting],
    held: Mapping[tuple[str, str], Mapping[Cause, int]],
    reports: Collection[RunReport],
    over_s: float,
) -> list[WaitRow]:
    """Return what jobs wait for at this moment, as if it were so for *over_s*.

    Args:
        waiting: the due jobs.
        held: how many of them quotas hold back, by pool and kind, and by cause.
        reports: of all supervisors.
        over_s: the time that the moment stands for.
    """
    found: list[WaitRow] = []
    for one in waiting:
        if not one.known:
            causes = Counter({Cause.UNKNOWN: one.jobs})
        elif one.paused:
            causes = Counter({Cause.PAUSE: one.jobs})
        else:
            causes = Counter(held.get((one.pool, one.kind), {}))
            causes[_on_hosts(one, reports)] += max(0, one.jobs - causes.total())
        found += [
            WaitRow(one.kind, one.pool, cause, jobs * over_s)
            for cause, jobs in causes.items()
            if jobs > 0
        ]
    return found


def _on_hosts(one: Waiting, reports: Collection[RunReport]) -> Cause:
    """Return what holds jobs back on all hosts that serve their pool."""
    holds = {
        pool.holds or (report.kinds[one.kind].holds if one.kind in report.kinds else "")
        for report in reports
        if (pool := report.pools.get(one.pool)) is not None
    }
    for cause in HELD_HERE:
        if holds == {cause}:
            return cause
    return Cause.SLOTS
