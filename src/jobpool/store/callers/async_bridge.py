"""Bridges a caller's asynchronous connection to a synchronous function in a thread.

Theory of operation. The function runs in a thread with a stand-in for the connection,
whose `execute` runs on the connection's own event loop, while the caller awaits the
thread. A connection of aiosqlite has a thread of its own, and sqlite3's connection
there: the function runs in that thread, with that one.

Import this module only where it is needed: importing asyncio takes long.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from jobpool.errors import UsageError
from jobpool.store.callers.unwrap import below_sqlalchemy, is_async, library_of

T = TypeVar("T")


async def call_async(connection: Any, function: Callable[[Any], T]) -> T:
    """Call a function with a synchronous stand-in for an asynchronous connection.

    Args:
        connection: psycopg's AsyncConnection, aiosqlite's, or SQLAlchemy's
            AsyncConnection or AsyncSession over these; a synchronous one is passed on
            as it is.
        function: called once, in a thread.

    Returns:
        What the function returns.

    Raises:
        asyncio.CancelledError: once the function has returned: it cannot be stopped,
            and must not use the connection at the same time as its owner.
    """
    if library_of(connection) == "sqlalchemy" and is_async(connection):
        connection = await _below_async_sqlalchemy(connection)
    if library_of(connection) == "aiosqlite":
        call: Coroutine[Any, Any, T] = _in_its_thread(connection, function)
    else:
        if is_async(connection):
            connection = StandIn(connection, asyncio.get_running_loop())
        call = asyncio.to_thread(function, connection)
    work = asyncio.ensure_future(call)
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
    """A synchronous stand-in for psycopg's AsyncConnection, for another thread.

    It has only what jobpool uses.

    Args:
        connection: the asynchronous connection.
        loop: its event loop.

    Attributes:
        connection: the asynchronous connection.
        info: psycopg's ConnectionInfo.
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
        """Return a cursor that returns tuples, whatever the row factory."""
        psycopg: Any = sys.modules["psycopg"]
        rows: Any = sys.modules["psycopg.rows"]
        cursor = psycopg.AsyncCursor(self.connection, row_factory=rows.tuple_row)
        return StandInCursor(cursor, self._loop)


class StandInCursor:
    """A synchronous stand-in for an asynchronous cursor.

    Args:
        cursor: the asynchronous cursor.
        loop: its event loop.
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


async def _below_async_sqlalchemy(connection: Any) -> Any:
    found = await connection.run_sync(below_sqlalchemy)
    if library_of(found) not in {"psycopg", "aiosqlite"}:
        raise UsageError(
            f"connection: SQLAlchemy uses the driver {type(found).__module__} there; "
            "of asynchronous connections jobpool can share those of psycopg and "
            "aiosqlite: create_async_engine('postgresql+psycopg://...'). Nothing was "
            "written"
        )
    return found


async def _in_its_thread(connection: Any, function: Callable[[Any], T]) -> T:
    """Call a function with sqlite3's connection below aiosqlite's, in its thread.

    Raises:
        UsageError: it is closed.
    """
    # SQLAlchemy's dialect takes it from there as well: there is no other way.
    below = connection._connection  # noqa: SLF001
    if below is None:
        raise UsageError("connection: it is closed; pass an open one")
    context = contextvars.copy_context()
    done: T = await connection._execute(context.run, function, below)  # noqa: SLF001
    return done
