"""The cap on unfinished jobs, enforced without counting them each time.

Theory of operation. A counter in the database is an upper bound on the number of
unfinished jobs: every enqueue raises it in its own transaction, and nothing lowers it.
When it reaches the limit the jobs are counted and the bound is replaced. So the limit
is exact, and a count is needed only once for as many jobs as there was room.

When the queue really is full, every refusal would count again. So counting may take at
most a tenth of the time: the last answer is used until nine times the count's own
duration has passed.
"""

from __future__ import annotations

from jobpool.core.clock import Clock
from jobpool.errors import QueueFull
from jobpool.store.operations.producers.fullness import beyond
from jobpool.store.statements.session import Session

_PATIENCE = 9.0


class DepthGuard:
    """Refuses jobs beyond the limit."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._counted = 0
        self._count_again_s = 0.0

    def reserve(self, session: Session, jobs: int) -> None:
        """Make room for jobs, within a transaction.

        Raises:
            QueueFull: there is none; nothing was changed.
        """
        if session.run("reserve_room", jobs=jobs, limit=self._limit):
            return
        began_s = self._clock.monotonic_s()
        if began_s < self._count_again_s:
            raise self._full(jobs)
        self._counted = session.value("count_unfinished")
        session.run("set_room", jobs=self._counted)
        if not session.run("reserve_room", jobs=jobs, limit=self._limit):
            ended_s = self._clock.monotonic_s()
            self._count_again_s = ended_s + _PATIENCE * (ended_s - began_s)
            raise self._full(jobs)

    def add(self, session: Session, jobs: int) -> None:
        """Count jobs that are accepted whatever the depth."""
        session.run("add_room", jobs=jobs)

    def limit_to(self, limit: int) -> None:
        """Take another limit, from the next call on."""
        self._limit = limit
        self._count_again_s = 0.0

    def _full(self, jobs: int) -> QueueFull:
        return beyond(self._counted, self._limit, jobs)
