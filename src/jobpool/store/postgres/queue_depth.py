"""The cap on unfinished jobs, without a counter that all producers would contend for.

Theory of operation. A row that each enqueue updates would make all producers on all
hosts wait for each other's commits. Instead the sizes of three partial indexes, which
are cheap to read, give an upper bound on the number of unfinished jobs; only when that
reaches the limit are the jobs counted. So the limit is exact for one producer; several
at the same moment may exceed it by the jobs that they are just storing.

While at least a tenth of the limit is free, one check is valid for a moment and for
half of the room that it found; and the next check may be sent along with the statement
that stores the job.

When the queue is nearly full, every enqueue would count. So a slow count may take at
most a tenth of the time: until nine times its own duration has passed its answer is
used, less what this process has stored since.
"""

from __future__ import annotations

import time

from jobpool.store.operations.producers.fullness import beyond
from jobpool.store.statements.session import Query, Session

_TRUST_S = 0.1
"""How long a check of the sizes is valid, while enough of the limit is free."""
_TRUST_SHARE = 0.1
_PATIENCE = 9.0
_SLOW_S = 0.1
"""A quicker count is repeated each time."""


class DepthGuard:
    """Refuses jobs beyond the limit."""

    def __init__(self, limit: int) -> None:
        self.room_query: Query
        """The query for the room that is left; `admit` evaluates its answer."""
        self._counted = 0
        self.limit_to(limit)

    def limit_to(self, limit: int) -> None:
        """Take another limit, from the next call on."""
        self.room_query = "room_left", {"limit": limit}
        self._limit = limit
        self._count_again_s = 0.0
        self._trusted = 0
        """How many jobs may be stored without another check, until:"""
        self._trust_until_s = 0.0
        self._was_wide = False

    def reserve(self, session: Session, jobs: int) -> None:
        """Make room for jobs, within a transaction.

        Raises:
            QueueFull: there is none; nothing was changed.
        """
        if jobs <= self._trusted and time.monotonic() < self._trust_until_s:
            self._trusted -= jobs
        else:
            name, given = self.room_query
            self.admit(session, jobs, session.value(name, **given))

    def may_check_late(self, jobs: int) -> bool:
        """Say whether a check is due that may be sent along with the insert.

        There was plenty of room at the last check, so a refusal is unlikely. Storing
        and then refusing leaves dead rows; checking first costs a round trip.
        """
        is_due = jobs > self._trusted or time.monotonic() >= self._trust_until_s
        return self._was_wide and is_due

    def admit(self, session: Session, jobs: int, room: int, stored: int = 0) -> None:
        """Accept jobs, or refuse them, by the answer to `room_query`.

        Args:
            session: in the transaction of that query.
            jobs: how many are to be stored.
            room: the answer.
            stored: how many of them have been stored since.

        Raises:
            QueueFull: there is no room; the transaction must be rolled back.
        """
        began_s = time.monotonic()
        self._was_wide = room >= _TRUST_SHARE * self._limit
        if room >= jobs:
            self._trusted = (room - jobs) // 2 if self._was_wide else 0
            self._trust_until_s = began_s + _TRUST_S
            return
        if began_s >= self._count_again_s:
            found: int = session.value("count_unfinished", limit=self._limit + stored)
            self._counted = found - stored
            ended_s = time.monotonic()
            if ended_s - began_s >= _SLOW_S:
                self._count_again_s = ended_s + _PATIENCE * (ended_s - began_s)
        if self._counted + jobs > self._limit:
            raise beyond(self._counted, self._limit, jobs)
        self._counted += jobs

    def add(self, session: Session, jobs: int) -> None:
        """Count jobs that are accepted whatever the depth."""
        del session
        self._counted += jobs
