"""Admission: whether more jobs may wait, asked of the store as seldom as possible.

What is decided is in `core.rules.admission`; here it is looked at and refused, in the
transaction that stores the jobs: on SQLite, where writers take turns, a look sees
all that was stored before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import msgspec

from jobpool.core.jobs.job import TIME_MAX_MS, NewJob
from jobpool.core.jobs.uniform_batch import UniformJobs, representatives
from jobpool.core.rules.admission import (
    COUNTED_BEYOND,
    EVERY,
    MANY,
    RETRY_MAX_S,
    Admission,
    Bound,
    Gauge,
    OnFull,
    Scope,
    Seen,
    Sort,
    excess,
    is_too_old,
    retry_after_s,
    spread,
)
from jobpool.core.units import show_duration
from jobpool.errors import QueueFull
from jobpool.store.records.quotas import FullRow
from jobpool.store.statements.session import Database, Session
from jobpool.store.statements.validation import ID_MAX

SCOPES_MAX = 1000
"""So many tenants are remembered; more cost a look each."""
STEPS_MAX = 1000
"""So many pairs of kind and priority are searched for the oldest job."""
ENDS_MAX = 1000
ENDS_WITHIN_S = 60.0
"""How fast jobs end is told by the newest of them, this many of this time at most."""
TENANTS_MAX = 100
"""So many full tenants are shown."""
OUTLOOK_S = 1.0
"""How long it is believed how fast a scope drains."""


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


class _Queue:
    """What a producer knows of one scope: its gauge, and when others may come."""

    __slots__ = ("gauge", "known_until_s", "next_s", "outlook")

    def __init__(self, bound: Bound) -> None:
        self.gauge = Gauge(bound)
        self.outlook = Outlook(None)
        self.known_until_s = float("-inf")
        self.next_s = float("-inf")
        """When the next job for later may be due: one after another."""


class Entrance:
    """Decides on the new jobs of one producer.

    Args:
        admission: the limits.
        now_s: monotonic time.

    Attributes:
        admission: that.
        is_open: no job is ever refused or postponed here.
    """

    def __init__(self, admission: Admission, now_s: Callable[[], float]) -> None:
        self.admission = admission
        self.is_open = admission.is_plain
        self._now_s = now_s
        self._queues: dict[Scope, _Queue] = {}
        self._has_slow: set[Scope] = set()
        """Those at which to look may take long."""
        self._of: dict[Concerned, tuple[tuple[Scope, _Queue], ...]] = {}
        for sort, bounds in (
            (Sort.POOL, admission.pools),
            (Sort.KIND, admission.kinds),
            (Sort.TENANT, admission.tenants),
        ):
            for name, bound in bounds.items():
                if (bound.depth_max or 0) >= MANY and name != EVERY:
                    self._has_slow.add(Scope(sort, name))

    def admit(self, jobs: Sequence[NewJob], sight: Sight) -> Sequence[NewJob]:
        """Return jobs as they are to be stored, within the transaction that does so.

        Only jobs that are due at once are limited here.

        Raises:
            QueueFull: some may not be stored; nothing was changed.
        """
        if self.is_open or self._fits(jobs):
            return jobs
        wanted: Counter[Scope] = Counter()
        queues: dict[Scope, _Queue] = {}
        first: dict[Scope, Concerned] = {}
        for job, count in _groups(jobs, sight).items():
            for scope, queue in self._concerned(job):
                wanted[scope] += count
                queues[scope] = queue
                first.setdefault(scope, job)
        full = [
            scope
            for scope, queue in queues.items()
            if not self._has_room(scope, queue, wanted[scope], sight)
        ]
        if full and self.admission.on_full is OnFull.REFUSE:
            self._refuse([(s, first[s], queues[s].gauge) for s in full], wanted, sight)
        if full:
            return self._postponed(jobs, sight)
        for scope, queue in queues.items():
            queue.gauge.take(wanted[scope])
        return jobs

    def _fits(self, jobs: Sequence[NewJob]) -> bool:
        """Say whether like jobs fit in, without a look, and if so count them.

        That is the usual call: `admit` takes four times as long.
        """
        if not isinstance(jobs, UniformJobs) or jobs.pattern.run_at_ms is not None:
            return False
        if jobs.pattern.delay_ms > 0:
            return True
        queues, count = self._concerned(_concerned_by(jobs.pattern)), len(jobs)
        now_s = self._now_s()
        for _, queue in queues:
            if not queue.gauge.is_trusted(count, now_s):
                return False
        for _, queue in queues:
            queue.gauge.take(count)
        return True

    def is_slow(self, jobs: Sequence[NewJob]) -> bool:
        """Say whether `admit` would look at something now that takes long."""
        return bool(self._has_slow) and any(self._slow(jobs))

    def foresee(self, jobs: Sequence[NewJob], sight: Sight) -> None:
        """Look at what takes long outside of the transaction that stores the jobs.

        Others would wait for that. What they store meanwhile is not counted, as while
        a slow look is believed.
        """
        for scope, queue in self._slow(jobs):
            self._look(scope, queue.gauge, sight)

    def _slow(self, jobs: Sequence[NewJob]) -> Iterator[tuple[Scope, _Queue]]:
        now_s = self._now_s()
        found = map(_concerned_by, representatives(jobs))
        # They are not checked yet.
        for job in {one for one in found if all(isinstance(n or "", str) for n in one)}:
            for scope, queue in self._concerned(job):
                if queue.gauge.is_slow and not queue.gauge.is_known(len(jobs), now_s):
                    yield scope, queue

    def refusal(
        self, full: QueueFull, jobs: Sequence[NewJob], sight: Sight
    ) -> QueueFull:
        """Return a refusal by the depth of the whole queue, with when to come back."""
        queue = self._queue(_WHOLE, self.admission.whole)
        outlook = self._outlook(_WHOLE, queue, _concerned_by(jobs[0]), sight)
        bound = Bound(depth_max=full.depth_max)
        return queue_full(_WHOLE, Seen(full.depth or 0), bound, len(jobs), outlook)

    def _concerned(self, job: Concerned) -> tuple[tuple[Scope, _Queue], ...]:
        found = self._of.get(job)
        if found is None:
            found = tuple(
                (scope, self._queue(scope, bound))
                for scope, bound in self.admission.of(*job)
            )
            if len(self._of) >= SCOPES_MAX:
                self._of.clear()
            self._of[job] = found
        return found

    def _queue(self, scope: Scope, bound: Bound) -> _Queue:
        found = self._queues.get(scope)
        if found is None:
            if len(self._queues) >= SCOPES_MAX:
                for remembered in (self._queues, self._of, self._has_slow):
                    remembered.clear()
            found = self._queues[scope] = _Queue(bound)
            if found.gauge.is_slow:
                self._has_slow.add(scope)
        return found

    def _has_room(self, scope: Scope, queue: _Queue, jobs: int, sight: Sight) -> bool:
        gauge = queue.gauge
        if not gauge.is_known(jobs, self._now_s()):
            self._look(scope, gauge, sight)
        return jobs <= gauge.room

    def _look(self, scope: Scope, gauge: Gauge, sight: Sight) -> None:
        most, began_s = (gauge.bound.depth_max or 0) + COUNTED_BEYOND, self._now_s()
        seen = sight.look(scope, gauge.bound, most)
        gauge.look(seen, began_s, self._now_s())
        if gauge.is_slow:
            self._has_slow.add(scope)
        else:
            self._has_slow.discard(scope)

    def _outlook(
        self, scope: Scope, queue: _Queue, job: Concerned, sight: Sight
    ) -> Outlook:
        now_s = self._now_s()
        if now_s >= queue.known_until_s:
            queue.outlook = sight.outlook(scope, job)
            queue.known_until_s = now_s + OUTLOOK_S
        return queue.outlook

    def _refuse(
        self,
        full: Sequence[tuple[Scope, Concerned, Gauge]],
        wanted: Mapping[Scope, int],
        sight: Sight,
    ) -> NoReturn:
        """Refuse jobs for the scope that will be full for longest.

        Raises:
            QueueFull: always.
        """
        found = [
            queue_full(
                scope,
                gauge.seen,
                gauge.bound,
                wanted[scope],
                self._outlook(scope, self._queues[scope], job, sight),
            )
            for scope, job, gauge in full
        ]
        raise max(found, key=lambda one: one.retry_after_s)

    def _postponed(self, jobs: Sequence[NewJob], sight: Sight) -> list[NewJob]:
        """Return jobs; those for which there is no room are due later."""
        now_ms, placed = sight.now_ms(), []
        for place, job in enumerate(jobs):
            concerned = _concerned_by(job)
            queues = self._concerned(concerned) if _is_due(job, now_ms) else ()
            full = [(s, queue) for s, queue in queues if queue.gauge.room < 1]
            if full:
                wait_s = max(self._turn_s(s, q, concerned, sight) for s, q in full)
                wait_ms = int(1000 * spread(wait_s, now_ms, place))
                if job.expires_in_ms is not None:
                    wait_ms = min(wait_ms, job.expires_in_ms // 2)
                placed.append(
                    msgspec.structs.replace(job, delay_ms=wait_ms, run_at_ms=None)
                )
            else:
                for _, queue in queues:
                    queue.gauge.take(1)
                placed.append(job)
        return placed

    def _turn_s(
        self, scope: Scope, queue: _Queue, job: Concerned, sight: Sight
    ) -> float:
        """Return when there may be room for one more, after those promised before."""
        outlook = self._outlook(scope, queue, job, sight)
        seen, bound, now_s = queue.gauge.seen, queue.gauge.bound, self._now_s()
        wait_s = retry_after_s(excess(seen, bound, 1), *outlook)
        turn_s = max(now_s + wait_s, queue.next_s)
        if outlook.ends_per_s:
            queue.next_s = min(turn_s, now_s + RETRY_MAX_S) + 1 / outlook.ends_per_s
        return min(turn_s - now_s, RETRY_MAX_S)


_WHOLE = Scope(Sort.QUEUE)


def beyond(held: int, most: int, jobs: int) -> QueueFull:
    """Return the error for jobs beyond the depth of the whole queue."""
    return queue_full(_WHOLE, Seen(held), Bound(depth_max=most), jobs, Outlook(None))


def full_scopes(admission: Admission, sight: Sight) -> Iterator[FullRow]:
    """Yield what has no room for one more job, or whose oldest has waited too long."""
    whole = Bound(depth_max=admission.depth_max, age_max_s=admission.age_max_s)
    limits = [(_WHOLE, whole)]
    limits += [(Scope(Sort.POOL, name), one) for name, one in admission.pools.items()]
    limits += [(Scope(Sort.KIND, name), one) for name, one in admission.kinds.items()]
    for scope, bound in limits:
        most = (bound.depth_max or 0) + COUNTED_BEYOND
        yield from _if_full(scope, bound, sight.look(scope, bound, most), sight)
    if not admission.tenants:
        return
    bounds = admission.tenants.values()
    least = min((b.depth_max for b in bounds if b.depth_max is not None), default=None)
    older_s = min((b.age_max_s for b in bounds if b.age_max_s), default=None)
    for name, seen in sight.tenants(least, older_s):
        for scope, bound in admission.of("", "", name):
            if scope.sort is Sort.TENANT:
                yield from _if_full(scope, bound, seen, sight)


def _if_full(scope: Scope, bound: Bound, seen: Seen, sight: Sight) -> Iterator[FullRow]:
    most = bound.depth_max
    if (most is None or seen.waiting < most) and not is_too_old(seen, bound):
        return
    pool, kind, tenant = _parameters(scope)
    outlook = sight.outlook(scope, Concerned(kind or "", pool or "", tenant))
    yield FullRow(
        what=str(scope),
        depth=seen.waiting,
        depth_max=most,
        age_s=seen.age_s,
        age_max_s=bound.age_max_s,
        retry_after_s=retry_after_s(excess(seen, bound, 1), *outlook),
    )


def _concerned_by(job: NewJob) -> Concerned:
    return Concerned(job.kind, job.pool, job.tenant)


def _is_due(job: NewJob, now_ms: int) -> bool:
    """Say whether a job waits for nothing but its turn."""
    if job.run_at_ms is None:
        return job.delay_ms <= 0
    return job.run_at_ms <= now_ms


def _groups(jobs: Sequence[NewJob], sight: Sight) -> Mapping[Concerned, int]:
    """Count the jobs that are due at once, by what concerns them."""
    if isinstance(jobs, UniformJobs):
        job = jobs.pattern
        now_ms = 0 if job.run_at_ms is None else sight.now_ms()
        return {_concerned_by(job): len(jobs)} if _is_due(job, now_ms) else {}
    is_plain = all(job.run_at_ms is None for job in jobs)
    now_ms = 0 if is_plain else sight.now_ms()
    return Counter(_concerned_by(job) for job in jobs if _is_due(job, now_ms))


def queue_full(
    scope: Scope, seen: Seen, bound: Bound, jobs: int, outlook: Outlook
) -> QueueFull:
    """Return the error for jobs that a scope has no room for.

    Args:
        scope: what is full.
        seen: how full.
        bound: its limit.
        jobs: how many more were to be stored.
        outlook: when it will have room.
    """
    after_s = retry_after_s(excess(seen, bound, jobs), *outlook)
    return QueueFull(
        f"{scope} {_fill(scope, seen, bound)}; {jobs:,} more were refused, and none of "
        f"them was enqueued. {_advice(seen, bound, jobs, outlook)}",
        what=str(scope),
        depth=seen.waiting,
        depth_max=bound.depth_max,
        age_s=seen.age_s,
        age_max_s=bound.age_max_s,
        retry_after_s=after_s,
    )


def _fill(scope: Scope, seen: Seen, bound: Bound) -> str:
    """Say how full a scope is."""
    most = bound.depth_max
    if is_too_old(seen, bound):
        age, longest = (show_duration(s or 0) for s in (seen.age_s, bound.age_max_s))
        oldest = f" (of kind {seen.oldest})" if seen.oldest else ""
        return f"has a due job{oldest} that has waited for {age}, of at most {longest}"
    what = "unfinished jobs" if scope.sort is Sort.QUEUE else "due jobs that wait"
    least = "at least " if seen.waiting >= (most or 0) + COUNTED_BEYOND else ""
    return f"holds {least}{seen.waiting:,} {what} of at most {most or 0:,}"


def _advice(seen: Seen, bound: Bound, jobs: int, outlook: Outlook) -> str:
    """Say when to come back, and what else helps."""
    if bound.depth_max is not None and jobs > bound.depth_max:
        if not bound.depth_max:
            return "Nothing is accepted there: depth_max is 0 in the configuration"
        return (
            f"So many never fit in: enqueue at most {bound.depth_max:,} at a time, or "
            "raise depth_max in the configuration (see: jobpool manual enqueueing)"
        )
    if outlook.held_s:
        why = f"a pause or a quota holds them for {show_duration(outlook.held_s)}"
    elif outlook.ends_per_s:
        why = f"{outlook.ends_per_s:.3g} end a second"
    else:
        why = "none has ended in the last minute"
    option = "age_max" if is_too_old(seen, bound) else "depth_max"
    after_s = retry_after_s(excess(seen, bound, jobs), *outlook)
    return (
        f"Try again in {show_duration(after_s)} ({why}; `jobpool status` shows whether "
        f"a supervisor runs), start more supervisors, or raise {option} in the "
        "configuration (see: jobpool manual enqueueing)"
    )


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
            of_pool, of_kind, _ = _parameters(scope)
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
        of_pool, of_kind, tenant = _parameters(scope)
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


def _parameters(scope: Scope) -> tuple[str | None, str | None, str | None]:
    """Return a scope's pool, kind and tenant."""
    sorts = (Sort.POOL, Sort.KIND, Sort.TENANT)
    pool, kind, tenant = (scope.name if scope.sort is s else None for s in sorts)
    return pool, kind, tenant
