"""The cap on unfinished jobs, without a counter that every producer would wait for.

Theory of operation. A row that each enqueue updates would make all producers of all
hosts take turns for the length of a commit. Instead the sizes of three partial
indexes, which cost nothing to ask for, bound the number of unfinished jobs from above;
only when that bound reaches the limit are the jobs counted. So one producer meets the
limit exactly; several at the same moment may pass it by what they hold in their hands.

While a tenth of the limit is free at the least, one look stands for a moment, and for
half of what it found free; and the next one may be asked in the same breath as the job
is stored.

When the queue is nearly full, every enqueue would count. A slow count may take a tenth
of the time at most: until nine times its own duration have passed, its answer stands,
less what this process has stored since.
"""

from __future__ import annotations

import time

from jobpool.store.statements.session import Query, Session
from jobpool.store.statements.validation import queue_full

_TRUST_S = 0.1
"""So long a look at the sizes stands, while a tenth of the limit at least is free."""
_TRUST_SHARE = 0.1
_PATIENCE = 9.0
_SLOW_S = 0.1
"""A quicker count is done again each time."""


class DepthGuard:
    """Refuses jobs beyond the limit."""

    def __init__(self, limit: int) -> None:
        self.room_query: Query = ("room_left", {"limit": limit})
        """What to ask; `admit` judges the answer."""
        self._limit = limit
        self._counted = 0
        self._count_again_s = 0.0
        self._trusted = 0
        """Jobs that may be stored without another look, until then:"""
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
        """Say whether to look is due, but may go along with what stores the jobs.

        There was much room at the last look, so they will hardly be refused: to be
        stored and refused leaves dead rows, to be asked for first costs a round trip.
        """
        is_due = jobs > self._trusted or time.monotonic() >= self._trust_until_s
        return self._was_wide and is_due

    def admit(self, session: Session, jobs: int, room: int, stored: int = 0) -> None:
        """Judge what a look has found.

        Args:
            session: in the transaction that has looked.
            jobs: how many are to be stored.
            room: what `look` found.
            stored: so many of them have been stored since.

        Raises:
            QueueFull: there is no room; the transaction has to be undone.
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
            raise queue_full(self._counted, self._limit, jobs)
        self._counted += jobs

    def add(self, session: Session, jobs: int) -> None:
        """Take note of jobs that are not refused whatever the depth."""
        del session
        self._counted += jobs
