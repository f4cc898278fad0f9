"""Which supervisor is cheapest to end. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from jobpool.core.jobs.job import Job
from jobpool.store.records.runs import Run


class Cheapest(NamedTuple):
    """The supervisor whose end interrupts the least work."""

    run: Run
    running: int
    """Attempts."""
    work_s: float
    """For how long they have run, together."""


def cheapest(
    living: Sequence[Run], leased: Sequence[Job], now_ms: int
) -> Cheapest | None:
    """Return it; None: there is no choice.

    Args:
        living: runs whose supervisors are alive.
        leased: what runs, or is about to.
        now_ms: the store's clock, or one that is near it.
    """
    if len(living) < 2:  # noqa: PLR2004 - there is a choice from two on
        return None
    running: Counter[str] = Counter()
    work_s: defaultdict[str, float] = defaultdict(float)
    for job in leased:
        if job.supervisor is not None and job.started_at_ms is not None:
            running[job.supervisor] += 1
            work_s[job.supervisor] += max(0, now_ms - job.started_at_ms) / 1000
    run = min(living, key=lambda one: (work_s[one.id], running[one.id]))
    return Cheapest(run, running[run.id], work_s[run.id])
