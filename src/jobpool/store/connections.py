"""From whatever a caller holds to the database connection below it.

Theory of operation. Applications hold a driver's connection, or something of
SQLAlchemy's or Django's around one. None of these libraries is imported here: a
type is known by the module that defines it, and so only if the caller has imported
it. What comes out is a driver's connection, and the caller's library has been told
that a transaction is open on it, or it would not commit what we write there.

An asynchronous connection is lent to a thread: what runs there gets a stand-in whose
`execute` runs on the connection's own event loop, while the caller awaits the thread.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Self, TypeVar

from jobpool.errors import UsageError

T = TypeVar("T")
POSTGRES = frozenset({"psycopg", "psycopg2", "jobpool"})
"""Whose connections are to PostgreSQL; jobpool's are stand-ins for psycopg's."""
_LIBRARIES = ("sqlalchemy", "django", "psycopg", "psycopg2", "sqlite3", "jobpool")


def library_of(connection: Any) -> str:
    """Return the first part of the module that defines a connection's type.

    Of a subclass of the caller's own it is that of the nearest base that is known.
    """
    for base in type(connection).__mro__:
        name = base.__module__.partition(".")[0]
        if name in _LIBRARIES:
            return name
    return type(connection).__module__.partition(".")[0]


def unwrap(connection: Any) -> Any:
    """Return the driver's connection below a caller's, in the caller's transaction.

    Raises:
        UsageError: it is asynchronous, or below it is nothing that can be used here.
    """
    if is_async(connection):
        raise UsageError(
            f"connection: {_name(connection)} is asynchronous; use "
            "`await ....enqueue_async(...)` or `await current().complete_async(...)` "
            "with it"
        )
    match library_of(connection):
        case "sqlalchemy":
            return _below_sqlalchemy(connection)
        case "django":
            return _below_django(connection)
        case _:
            return connection


def is_async(connection: Any) -> bool:
    """Say whether a connection or session must be awaited."""
    if library_of(connection) not in {"psycopg", "sqlalchemy"}:
        return False
    names = {base.__name__ for base in type(connection).__mro__}
    return bool(names & {"AsyncConnection", "AsyncSession", "async_scoped_session"})


def has_transaction(connection: Any) -> bool:
    """Say whether a driver's connection is within a transaction now."""
    if library_of(connection) in POSTGRES:
        return bool(connection.info.transaction_status)
    return bool(getattr(connection, "in_transaction", False))


async def call_async(connection: Any, function: Callable[[Any], T]) -> T:
    """Call a function with a synchronous stand-in for an asynchronous connection.

    Args:
        connection: psycopg's AsyncConnection, or SQLAlchemy's AsyncConnection or
            AsyncSession; a synchronous one is passed on as it is.
        function: called once, in a thread.

    Returns:
        What the function returns.

    Raises:
        asyncio.CancelledError: after the function has come to its end: it cannot be
            stopped, and must not use the connection beside its owner.
    """
    if is_async(connection):
        if library_of(connection) == "sqlalchemy":
            connection = await _below_async_sqlalchemy(connection)
        connection = StandIn(connection, asyncio.get_running_loop())
    work = asyncio.ensure_future(asyncio.to_thread(function, connection))
    canceled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            canceled = error
    if canceled is not None:
        if not work.cancelled() and (failure := work.exception()):
            canceled.add_note(f"what was canceled had failed: {failure!r}")
        raise canceled
    return work.result()


class StandIn:
    """Psycopg's AsyncConnection as a synchronous one, for another thread.

    It has what jobpool uses of one, no more. The caller awaits the thread meanwhile.

    Args:
        connection: the asynchronous connection.
        loop: where it lives.

    Attributes:
        connection: the asynchronous connection.
        info: facts about it.
        autocommit: whether each statement commits by itself.
    """

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.connection = connection
        self.info = connection.info
        self.autocommit = bool(connection.autocommit)
        self._loop = loop

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return bool(self.connection.closed)

    def plain_cursor(self) -> StandInCursor:
        """Return a cursor that gives tuples, whatever the connection's own gives."""
        psycopg: Any = sys.modules["psycopg"]
        rows: Any = sys.modules["psycopg.rows"]
        cursor = psycopg.AsyncCursor(self.connection, row_factory=rows.tuple_row)
        return StandInCursor(cursor, self._loop)


class StandInCursor:
    """An asynchronous cursor as a synchronous one.

    Args:
        cursor: the asynchronous cursor.
        loop: where it lives.
    """

    def __init__(self, cursor: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._cursor = cursor
        self._loop = loop

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._wait(self._cursor.close())

    def __getattr__(self, name: str) -> Any:
        # What need not be awaited: description, rowcount, nextset.
        return getattr(self._cursor, name)

    def execute(self, *arguments: Any, **options: Any) -> None:
        """Execute on the connection's own loop, and wait for it."""
        self._wait(self._cursor.execute(*arguments, **options))

    def fetchall(self) -> Any:
        """Return all rows."""
        return self._wait(self._cursor.fetchall())

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def _below_sqlalchemy(connection: Any) -> Any:
    """Return the driver's connection; its Connection knows of the transaction."""
    if hasattr(connection, "get_bind"):  # a Session
        connection = connection.connection()
    if not hasattr(connection, "exec_driver_sql"):
        raise UsageError(
            f"connection: SQLAlchemy's {_name(connection)} is no connection; pass a "
            "Connection or a Session"
        )
    if not connection.in_transaction():
        connection.begin()  # as its own execute() would
    return connection.connection.driver_connection


async def _below_async_sqlalchemy(connection: Any) -> Any:
    found = await connection.run_sync(_below_sqlalchemy)
    if library_of(found) != "psycopg":
        raise UsageError(
            f"connection: SQLAlchemy uses the driver {type(found).__module__} there; "
            "jobpool can share an asynchronous connection of psycopg only: "
            "create_async_engine('postgresql+psycopg://...')"
        )
    return found


def _below_django(connection: Any) -> Any:
    """Return the driver's connection of ``django.db.connection`` or its like."""
    connection.ensure_connection()
    return connection.connection


def _name(connection: Any) -> str:
    return f"{type(connection).__module__}.{type(connection).__name__}"
