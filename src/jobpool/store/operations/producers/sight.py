"""What admission can see: how many jobs wait, how long, and how fast they end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from jobpool.core.jobs.job import TIME_MAX_MS
from jobpool.core.rules.admission import (
    Bound,
    Scope,
    Seen,
    Sort,
)
from jobpool.store.statements.session import Database, Session
from jobpool.store.statements.validation import ID_MAX

STEPS_MAX = 1000
"""So many pairs of kind and priority are searched for the oldest job."""
ENDS_MAX = 1000
ENDS_WITHIN_S = 60.0
"""How fast jobs end is told by the newest of them, this many of this time at most."""
TENANTS_MAX = 100
"""So many full tenants are shown."""


class Concerned(NamedTuple):
    """What limits are for, of one job."""

    kind: str
    pool: str
    tenant: str | None


class Outlook(NamedTuple):
    """When a scope will have room."""

    ends_per_s: float | None
    """None: nothing of it has ended lately."""
    held_s: float = 0.0
    """Nothing of it begins for so long."""


class Sight(Protocol):
    """What can be seen of the jobs that wait."""

    def now_ms(self) -> int:
        """Return the store's clock."""
        ...

    def look(self, scope: Scope, bound: Bound, most: int) -> Seen:
        """Count what waits, up to *most*, and find the oldest."""
        ...

    def tenants(
        self, least: int | None, older_s: float | None
    ) -> Iterable[tuple[str, Seen]]:
        """Return tenants of which so many jobs wait, or one for longer than that."""
        ...

    def outlook(self, scope: Scope, job: Concerned) -> Outlook:
        """Say how fast jobs of a scope end, and how long those like *job* are held."""
        ...


class StoredSight:
    """What can be seen within a transaction of a database."""

    __slots__ = ("_database", "_session")

    def __init__(self, database: Database, session: Session) -> None:
        self._database = database
        self._session = session

    def now_ms(self) -> int:
        """See `Sight`."""
        return self._database.now_ms(self._session)

    def look(self, scope: Scope, bound: Bound, most: int) -> Seen:
        """See `Sight`."""
        if scope.sort is Sort.TENANT:
            rows = self._rows("waiting_of_tenant", tenant=scope.name, most=most)
        else:
            of_pool, of_kind, _ = parameters_of(scope)
            rows = self._rows(
                "waiting_of", pool=of_pool, kind=of_kind, most=most, steps=STEPS_MAX
            )
        ((waiting, age_ms, oldest),) = rows
        if scope.sort is Sort.QUEUE and bound.depth_max is not None:
            waiting = self._session.value("unfinished_up_to", most=most)
        names_kind = oldest is not None and scope.sort is not Sort.KIND
        return Seen(
            waiting,
            None if age_ms is None else max(0.0, age_ms / 1000),
            oldest.decode() if names_kind else "",
        )

    def tenants(
        self, least: int | None, older_s: float | None
    ) -> Iterable[tuple[str, Seen]]:
        """See `Sight`."""
        rows = self._rows(
            "waiting_tenants",
            least=ID_MAX if least is None else max(1, least),
            older_ms=TIME_MAX_MS if older_s is None else int(1000 * older_s),
            most=TENANTS_MAX,
        )
        return [(name, Seen(jobs, age_ms / 1000)) for name, jobs, age_ms in rows]

    def outlook(self, scope: Scope, job: Concerned) -> Outlook:
        """See `Sight`."""
        of_pool, of_kind, tenant = parameters_of(scope)
        ((matched, found, oldest_ms),) = self._rows(
            "ended_lately",
            pool=of_pool,
            kind=of_kind,
            tenant=tenant,
            within_ms=int(1000 * ENDS_WITHIN_S),
            most=ENDS_MAX,
        )
        held_ms = self._rows(
            "held_for", pool=job.pool, kind=job.kind, tenant=job.tenant, most=ENDS_MAX
        )[0][0]
        ends = ends_per_s(matched, found, (oldest_ms or 0) / 1000)
        return Outlook(ends, (held_ms or 0) / 1000)

    def _rows(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        now_ms = self._database.known_ms(self._session)
        return self._session.rows(name, now_ms=now_ms, **parameters)


def ends_per_s(matched: int, found: int, over_s: float) -> float | None:
    """Return how fast jobs end, by the newest ends.

    Args:
        matched: how many of them are meant.
        found: how many there are of all, up to `ENDS_MAX`.
        over_s: how long ago the oldest of those was.
    """
    if not matched:
        return None
    whole_s = max(1.0, over_s) if found >= ENDS_MAX else ENDS_WITHIN_S
    return matched / whole_s


def parameters_of(scope: Scope) -> tuple[str | None, str | None, str | None]:
    """Return a scope's pool, kind and tenant."""
    sorts = (Sort.POOL, Sort.KIND, Sort.TENANT)
    pool, kind, tenant = (scope.name if scope.sort is s else None for s in sorts)
    return pool, kind, tenant
