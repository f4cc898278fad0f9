"""Jobs that fall due or expire, and which of those that are due a lease may take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import OwnSession, Query, Row, Session

STEP_JOBS = 1000
"""The most jobs that one call expires, and the most that it promotes."""
REACH_TIMES = 4
"""So many times as many jobs as are wanted are looked at: others may hold the first."""
FURTHER_TIMES = 8
"""If others hold all of these, so many times as many are."""
REACH_MAX = 16_384
"""More than many supervisors hold while their leases are being committed."""


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


def query(
    by: Mapping[str, object], pool: str, kinds: Sequence[str], limit: int
) -> tuple[str, Mapping[str, object]]:
    """Return the query for the best jobs of a pool."""
    given = {"pool": pool, "kinds": as_json(set(kinds)), "limit": limit}
    return "lease_candidates", {**by, **given, "reach": REACH_TIMES * limit}


def queries(
    by: Mapping[str, object],
    kinds: Mapping[str, Sequence[str]],
    wanted: Mapping[str, int],
) -> list[Query]:
    """Return the queries for the best jobs of pools."""
    return [query(by, pool, names, wanted[pool]) for pool, names in kinds.items()]


def asked(session: OwnSession, queries: Sequence[Query]) -> list[list[Row]]:
    """Return the answers, all in one round trip."""
    return session.ask(*queries) if queries else []


def further(
    session: Session,
    by: Mapping[str, object],
    pool: str,
    kinds: Sequence[str],
    limit: int,
) -> Sequence[Row]:
    """Return the best jobs behind those that others hold, as far as there are any.

    One that wants few would else get none, again and again, beside others that want
    many.
    """
    name, given = query(by, pool, kinds, limit)
    reach = REACH_TIMES * limit
    found: Sequence[Row] = ()
    while not found and reach < REACH_MAX:
        reach *= FURTHER_TIMES
        found = session.rows(name, **{**given, "reach": reach})
    return found


def others_hold(session: Session, pool: str, kinds: Sequence[str], now_ms: int) -> bool:
    """Say whether other transactions hold the runnable jobs of a pool.

    Called when none was found. The others may roll back, and a supervisor that was
    reported "nothing due" would not ask again soon; one that got a job does.
    """
    known = as_json(set(kinds))
    return bool(
        session.value("count_runnable", pool=pool, kinds=known, limit=1, now_ms=now_ms)
    )
