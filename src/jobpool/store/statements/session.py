"""What the operations need of a database: named queries and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from jobpool.store.statements.moment import Moment

Row = tuple[Any, ...]
Query = tuple[str, Mapping[str, Any]]
"""Its name and its parameters."""


class Session(Protocol):
    """Runs named queries on one connection. Every error is one of jobpool's own."""

    @property
    def place(self) -> str:
        """The database, for messages: without a password."""
        ...

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a query and fetch all of its rows."""
        ...

    def run(self, name: str, /, **parameters: Any) -> int:
        """Run a statement; return how many rows it changed."""
        ...

    def value(self, name: str, /, **parameters: Any) -> Any:
        """Run a query; return the first column of its first row, or None."""
        ...


class OwnSession(Session, Protocol):
    """A session on a connection of the store's own."""

    def ask(self, *queries: Query) -> list[list[Row]]:
        """Run queries that do not depend on each other; fetch the rows of each.

        Over a network they take one round trip. If one fails, all fail.
        """
        ...


class Database(Protocol):
    """One connection, and the locks and transactions around its use."""

    def reading(self) -> AbstractContextManager[OwnSession]:
        """Use the connection for queries."""
        ...

    def writing(self) -> AbstractContextManager[OwnSession]:
        """Use the connection in a transaction, a new one or the one that is open."""
        ...

    @property
    def is_writing(self) -> bool:
        """Whether this thread has a transaction open."""
        ...

    def now_ms(self, session: Session, *, fresh: bool = False) -> int:
        """Return the store's clock: milliseconds since 1970, UTC.

        Args:
            session: asked for the time if necessary.
            fresh: read it now, not as of the transaction's beginning, because a lock
                was waited for in between.
        """
        ...

    def moment(self, session: Session) -> Moment:
        """Return the present moment by the store's clock and by this machine's."""
        ...

    def known_ms(self, session: Session) -> int | None:
        """Return the store's clock if it is known without asking the server.

        None: the transaction begins with the next query, and reads the clock there.
        """
        ...


class Depth(Protocol):
    """The cap on unfinished jobs."""

    def reserve(self, session: Session, jobs: int) -> None:
        """Make room for jobs, within a transaction.

        Raises:
            QueueFull: there is none; nothing was changed.
        """
        ...

    def add(self, session: Session, jobs: int) -> None:
        """Count jobs that are accepted whatever the depth."""
        ...

    def limit_to(self, limit: int) -> None:
        """Take another limit, from the next call on."""
        ...
