"""One store object's turns at the database: reading, writing, transactions."""

from __future__ import annotations

from types import TracebackType

from jobpool.errors import UsageError
from jobpool.store.memory.database import MemoryDatabase


class Session:
    """Who uses the database, and how.

    Attributes:
        database: what it uses.
        reading: context manager: nothing changes meanwhile.
        writing: context manager: all changes happen or, after an exception, none;
            re-entrant.
        commits: own transactions so far that have changed something.
    """

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database
        self.commits = 0
        self.reading = _Reading(self)
        self.writing = _Writing(self)
        self._is_closed = False

    def check(self) -> None:
        """Refuse a use after the end, or in a forked child.

        Raises:
            UsageError: it is one.
        """
        self.database.check_process()
        if self._is_closed:
            raise UsageError(
                f"the store on {self.database.url} is closed; open another one"
            )

    def close(self) -> None:
        """End it; again is harmless."""
        self._is_closed = True


class _Reading:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._set_aside: list[bool] = []

    def __enter__(self) -> None:
        self._session.check()
        is_foreign = self._session.database.begin_reading(self._session)
        self._set_aside.append(is_foreign)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.database.end_reading(was_set_aside=self._set_aside.pop())


class _Writing:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._marks: list[int] = []
        """Where each open step begins in the journal, the outermost first."""

    def __enter__(self) -> None:
        self._session.check()
        self._marks.append(self._session.database.begin(self._session))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        session = self._session
        mark = self._marks.pop()
        is_outermost = not self._marks
        try:
            if kind is not None:
                session.database.undo(mark)
            if is_outermost:
                session.commits += session.database.commit()
        finally:
            session.database.leave(is_outermost=is_outermost)
