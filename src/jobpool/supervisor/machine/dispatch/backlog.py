"""What leaves a pool's backlog without having begun, to be handed back."""

from __future__ import annotations

from jobpool.core.jobs.job import Lease
from jobpool.supervisor.machine.dispatch.lateness import Lateness
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import NEVER_S

HOLD_S = 1.0
"""A leased job that no slot has taken by then is handed back, with all behind it."""


def expired(pool: Pool, lateness: Lateness, now_s: float) -> list[Lease]:
    """Take jobs from the front that may not begin any more.

    Args:
        pool: the pool.
        lateness: as of `late`.
        now_s: monotonic time, plus what the host has slept.
    """
    backlog, back = pool.backlog, late(pool, lateness, now_s)
    while backlog and backlog[0].expires_s <= now_s:
        back.append(backlog.popleft().lease)
    return back


def late(pool: Pool, lateness: Lateness, now_s: float) -> list[Lease]:
    """Take out, at any place, what a rate counts as begun by now.

    Args:
        pool: the pool.
        lateness: is told what was late.
        now_s: monotonic time, plus what the host has slept.
    """
    if pool.begin_by_s > now_s:
        return []
    found = [job for job in pool.backlog if job.begin_by_s <= now_s]
    for job in found:
        pool.backlog.remove(job)
    pool.begin_by_s = min((job.begin_by_s for job in pool.backlog), default=NEVER_S)
    pool.was_late((job.lease.kind for job in found), now_s)
    lateness.were_late(found)
    return [job.lease for job in found]


def behind_the_first(pool: Pool, now_s: float) -> list[Lease]:
    """Take out what has waited too long behind a first job that may wait on."""
    back = []
    while len(pool.backlog) > 1 and pool.backlog[-1].leased_s + HOLD_S <= now_s:
        back.append(pool.backlog.pop().lease)
    return back


def whole(pool: Pool) -> list[Lease]:
    """Take out everything."""
    back = [job.lease for job in pool.backlog]
    pool.backlog.clear()
    return back


def distrusted(pool: Pool, epoch: int) -> list[Lease]:
    """Take out jobs that came back from a child after a fence.

    They are always at the front of the backlog.
    """
    backlog, back = pool.backlog, []
    while backlog and backlog[0].epoch != epoch:
        back.append(backlog.popleft().lease)
    return back


def held_until_s(pool: Pool) -> float:
    """Return until when the first job waits."""
    return min(pool.backlog[0].leased_s + HOLD_S, pool.lasts_from_s())
