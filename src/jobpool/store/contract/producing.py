"""What whoever enqueues asks of a store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from jobpool.core.jobs.job import Enqueued, NewJob
from jobpool.core.rules.admission import Admission
from jobpool.store.records.quotas import FullRow


class Producing(Protocol):
    """Jobs come in."""

    def enqueue(
        self, jobs: Sequence[NewJob], connection: Any = None, *, wakes: bool = False
    ) -> list[Enqueued]:
        """Store jobs; they are durable once this returns.

        Args:
            jobs: in order; ids grow in this order.
            connection: the caller's own DB-API connection to the same database; the
                jobs then belong to its transaction and commit or roll back with it.
            wakes: `wake` as well, once they are stored; not for use with a caller's
                connection or within `transaction`.

        Raises:
            KeyConflict: a key is held by a job with other arguments or kind.
            QueueFull: as many jobs wait as may wait, in the whole queue or in a pool,
                or of a kind or a tenant; or one has waited for too long.
            UsageError: the connection is closed, or is to another database.
            StoreUnavailable: nothing was stored.
            OutcomeUnknown: the commit failed such that they may or may not be stored.
        """
        ...

    def admit_by(self, admission: Admission) -> None:
        """Take other limits on jobs that wait, from the next call on."""
        ...

    def full(self) -> list[FullRow]:
        """Return what has no room for more jobs, by this producer's limits."""
        ...

    def caller_transaction(self, connection: Any) -> AbstractContextManager[None]:
        """Begin a write transaction on a caller's connection, and end it.

        Waits for its turn among jobpool's writers, begins, and on leaving commits and
        wakes the supervisors; an exception rolls everything back. Within it, jobs are
        stored by ``enqueue(jobs, connection=connection)``.

        Args:
            connection: the caller's own DB-API connection to the same database,
                without an open transaction.

        Raises:
            UsageError: the connection is closed, is to another database, or has a
                transaction open.
            StoreUnavailable: it could not be begun or committed; nothing happened.
            OutcomeUnknown: its commit failed such that it may or may not have happened.
        """
        ...
