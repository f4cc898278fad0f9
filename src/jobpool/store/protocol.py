"""The Store protocol: one method for each state change of a job.

Each method is a transaction of its own, or joins the one that `transaction` has opened.
A method that raises has changed nothing. The store's clock decides what is due and what
has expired. Whatever settles or renews a lease names its token, and a superseded token
changes nothing.

One conformance suite (``tests/store``) holds every implementation to this.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeGuard

from jobpool.store.contract.alerting import Alerting
from jobpool.store.contract.flows import FlowKeeping
from jobpool.store.contract.operating import Operating
from jobpool.store.contract.producing import Producing
from jobpool.store.contract.reading import Reading
from jobpool.store.contract.supervising import Supervising


class Store(
    Producing, Supervising, Reading, Operating, FlowKeeping, Alerting, Protocol
):
    """A durable store of jobs. One object serves one thread at a time."""

    @property
    def url(self) -> str:
        """The store's URL with an absolute path and without a password."""
        ...

    @property
    def one_host(self) -> bool:
        """Whether this kind of store can only be used from one host."""
        ...

    @property
    def run_root(self) -> Path:
        """The directory in which this host's supervisors keep their run directories."""
        ...

    def interrupt(self) -> None:
        """End the query that another thread waits for in this object, if there is one.

        That thread gets `StoreUnavailable`. A transaction is not ended by it, and what
        is only in memory is never waited for.
        """
        ...

    def close(self) -> None:
        """Close the connection; the store object cannot be used any more."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Group several methods into one commit; re-entrant.

        Raises:
            StoreUnavailable: on leaving, the commit failed; nothing happened.
            OutcomeUnknown: its answer was lost and could not be found out: it may or
                may not have happened.
        """
        ...


class SharedStore(Store, Protocol):
    """A store that several hosts can use: its leases expire by its own clock."""

    def wait_for_wake(self, timeout_s: float) -> bool:
        """Wait until a client calls `wake`, at most this long.

        Returns:
            Whether one did. Behind a pooler, where no wake-up arrives, it is False
            after the full time: poll.
        """
        ...


def is_shared(store: Store) -> TypeGuard[SharedStore]:
    """Say whether other hosts may use the store, so that leases expire by time."""
    return not store.one_host
