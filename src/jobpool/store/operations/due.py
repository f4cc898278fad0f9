"""Jobs that fall due, and those that expire before their first attempt."""

from __future__ import annotations

from collections.abc import Iterable

from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Session

STEP_JOBS = 1000
"""The most jobs that one call expires, and the most that it promotes."""


def bring_due(
    session: Session, due_ms: int | None, now_ms: int, *, has_expired: bool
) -> tuple[int | None, bool]:
    """Cancel expired jobs, and make due ones runnable.

    Returns:
        When the next pending job falls due, and whether anything was done.
    """
    if has_expired:
        expired = session.rows("expired_jobs", now_ms=now_ms, limit=STEP_JOBS)
        expire(session, [job_id for (job_id,) in expired], now_ms)
        due_ms = due_from(session.value("next_due"))  # some may have waited for these
    has_due = due_ms is not None and due_ms <= now_ms
    if has_due:
        session.run("promote_due", now_ms=now_ms, limit=STEP_JOBS)
    if not has_expired and not has_due:
        return due_ms, False
    return due_from(session.value("next_due")), True


def in_s(due_ms: int | None, now_ms: int) -> float | None:
    """Return the seconds until a moment, or None without one."""
    return None if due_ms is None else max(0.0, (due_ms - now_ms) / 1000)


def earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    """Return the earlier of two moments, of which either may never come."""
    return min((ms for ms in (one_ms, other_ms) if ms is not None), default=None)


def due_from(value: object) -> int | None:
    """Return when a job falls due; a value that is not a number never does."""
    return round(value) if isinstance(value, (int, float)) else None


def expire(session: Session, ids: Iterable[int], now_ms: int) -> None:
    """Cancel jobs that have expired before their first attempt."""
    if ids:
        session.run("expire_jobs", ids=as_json(ids), now_ms=now_ms)
