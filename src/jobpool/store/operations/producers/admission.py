"""Admission: whether more jobs may wait, asked of the store as seldom as possible.

What is decided is in `core.rules.admission`; here it is looked at and refused, in the
transaction that stores the jobs: on SQLite, where writers take turns, a look sees
all that was stored before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

import msgspec

from jobpool.core.jobs.job import NewJob
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
    retry_after_s,
    spread,
)
from jobpool.errors import QueueFull
from jobpool.store.operations.producers.fullness import WHOLE, queue_full
from jobpool.store.operations.producers.sight import (
    Concerned,
    Outlook,
    Sight,
)

SCOPES_MAX = 1000
"""So many tenants are remembered; more cost a look each."""
OUTLOOK_S = 1.0
"""How long it is believed how fast a scope drains."""


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

    def by(self, admission: Admission) -> Entrance:
        """Return one with other limits, which has seen nothing yet."""
        return Entrance(admission, self._now_s)

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
        queue = self._queue(WHOLE, self.admission.whole)
        outlook = self._outlook(WHOLE, queue, _concerned_by(jobs[0]), sight)
        bound = Bound(depth_max=full.depth_max)
        return queue_full(WHOLE, Seen(full.depth or 0), bound, len(jobs), outlook)

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
