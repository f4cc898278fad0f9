"""Sessions on a caller's own connection: is it to our database, and how does it commit?

Theory of operation. The caller's connection may be psycopg's (or a stand-in for an
asynchronous one) or psycopg2's, with its own row and cursor factories, and in any
state. Jobs written through it belong to its transaction. We work in a savepoint, so
that our errors leave the caller's transaction usable. We commit only where each
statement commits by itself and no transaction is open.

A superseded `complete` is the exception: it makes the transaction fail for good,
because the handler may swallow the error and commit work that another attempt has done
as well.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from jobpool.errors import OutcomeUnknown, StoreError, UsageError
from jobpool.store.callers.async_bridge import StandIn
from jobpool.store.callers.unwrap import POSTGRES, library_of
from jobpool.store.postgres.connection.database import Database
from jobpool.store.postgres.connection.errors import explain
from jobpool.store.postgres.connection.session import queries_of
from jobpool.store.postgres.connection.url import Address
from jobpool.store.statements.session import Row

_NULL = b"null"
_UNDEFINED = frozenset({"42P01", "3F000", "42501"})
_checked: weakref.WeakKeyDictionary[Any, tuple[str, int]] = weakref.WeakKeyDictionary()
"""Connections that were checked: the schema and id of their store."""


class CallerSession:
    """Runs named queries on a caller's connection.

    Args:
        connection: of psycopg or psycopg2, or a stand-in.
        address: the store's.

    Attributes:
        known_ms: the store's clock at the savepoint.
    """

    __slots__ = ("_library", "_queries", "address", "connection", "known_ms")

    def __init__(self, connection: Any, address: Address) -> None:
        self.connection = connection
        self.address = address
        self.known_ms: int | None = None
        self._library = library_of(connection)
        self._queries = queries_of(address.schema)

    @property
    def place(self) -> str:
        """See `statements.session.Session`."""
        return self.address.shown

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a query and fetch all of its rows.

        Raises:
            StoreError: it failed.
        """
        return self._execute(name, parameters)[0]

    def run(self, name: str, /, **parameters: Any) -> int:
        """Run a statement; return how many rows it changed.

        Raises:
            StoreError: it failed.
        """
        return self._execute(name, parameters)[1]

    def value(self, name: str, /, **parameters: Any) -> Any:
        """Run a query; return the first column of its first row, or None."""
        rows = self.rows(name, **parameters)
        return rows[0][0] if rows else None

    def join(self, name: str) -> None:
        """Open a savepoint, and read the store's clock."""
        self.known_ms = self.value(name)

    def _execute(
        self, name: str, parameters: Mapping[str, Any]
    ) -> tuple[list[Row], int]:
        query = self._queries[name]
        try:
            if self._library == "psycopg2":
                return _execute_psycopg2(self.connection, query, parameters)
            return _execute_psycopg(self.connection, query, parameters)
        except psycopg.Error as error:
            raise explain(error, self.place) from error
        except Exception as error:
            known = _as_psycopg(error)
            if known is None:
                raise
            # Converted to psycopg's kind, so that the cause carries the SQLSTATE.
            raise explain(known, self.place) from known


def _execute_psycopg(
    connection: Any, query: str, parameters: Mapping[str, Any]
) -> tuple[list[Row], int]:
    # Not the connection's cursor class, which may be any.
    with (
        connection.plain_cursor()
        if isinstance(connection, StandIn)
        else psycopg.Cursor(connection, row_factory=tuple_row)
    ) as cursor:
        cursor.execute(
            query.encode(), parameters or None, prepare=False, binary=bool(parameters)
        )
        while cursor.nextset():
            pass
        rows = cursor.fetchall() if cursor.description else []
        return rows, cursor.rowcount


def _execute_psycopg2(
    connection: Any, query: str, parameters: Mapping[str, Any]
) -> tuple[list[Row], int]:
    extensions: Any = sys.modules["psycopg2.extensions"]
    with connection.cursor(cursor_factory=extensions.cursor) as cursor:
        cursor.execute(query, parameters or None)
        found = cursor.fetchall() if cursor.description else []
        rows = [
            tuple(bytes(v) if isinstance(v, memoryview) else v for v in row)
            for row in found
        ]
        return rows, cursor.rowcount


def _as_psycopg(error: Exception) -> psycopg.Error | None:
    """Convert an error of psycopg2 to the one that psycopg would have raised."""
    if library_of(error) != "psycopg2":
        return None
    state = getattr(error, "pgcode", None)
    kind = psycopg.OperationalError
    if state:
        try:
            return psycopg.errors.lookup(state)(str(error))
        except KeyError:
            pass
    return kind(str(error))


# -- enqueueing --------------------------------------------------------------------


@contextmanager
def joined(database: Database, connection: Any) -> Iterator[CallerSession]:
    """Use a caller's connection for one method; the caller commits what it wrote.

    Raises:
        UsageError: it is not a connection to the store, is closed or busy, or its
            transaction has failed.
        OutcomeUnknown: it was lost while a statement committed by itself.
    """
    with joined_as(CallerSession(connection, database.address)) as session:
        _check_store(session, database.store_id)
        yield session


@contextmanager
def joined_as(session: CallerSession) -> Iterator[CallerSession]:
    """Use a savepoint, within a transaction of our own if none would be open."""
    is_ours = check_state(session.connection) and session.connection.autocommit
    session.join("join_alone" if is_ours else "join")
    try:
        yield session
        session.run("release")
    except BaseException:
        _undo(session, is_ours=is_ours)
        raise
    if is_ours:
        _commit(session)


def _undo(session: CallerSession, *, is_ours: bool) -> None:
    if session.connection.closed:
        return
    if is_ours:
        session.run("rollback")
    elif session.connection.info.transaction_status != TransactionStatus.IDLE:
        session.run("rollback_to")
        session.run("release")


def _commit(session: CallerSession) -> None:
    try:
        session.run("commit")
    except StoreError as error:
        raise _lost(session, error) from error


def _lost(session: CallerSession, error: StoreError) -> StoreError:
    """Return the error to raise after a commit failed."""
    if not session.connection.closed:
        return error
    return OutcomeUnknown(
        f"the connection to {session.place} was lost during the commit; check whether "
        "it happened before you do it again, or do it under an idempotency key"
    )


def check_state(connection: Any) -> bool:
    """Return whether the connection has no open transaction.

    Raises:
        UsageError: it cannot be used now.
    """
    if library_of(connection) not in POSTGRES:
        raise UsageError(
            "connection: expected one to the store's PostgreSQL database, of psycopg, "
            "psycopg2, SQLAlchemy or Django, got "
            f"{type(connection).__module__}.{type(connection).__name__}"
        )
    if connection.closed:
        raise UsageError("connection: it is closed; pass an open one")
    status = connection.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise UsageError(
            "connection: its transaction has failed (an earlier statement raised); "
            "roll it back, or back to a savepoint, and start again"
        )
    if status not in {TransactionStatus.IDLE, TransactionStatus.INTRANS}:
        raise UsageError(
            "connection: it is busy with another statement (a COPY, a pipeline, "
            "another thread); use it when that has ended"
        )
    return bool(status == TransactionStatus.IDLE)


def _check_store(session: CallerSession, store_id: int) -> None:
    """Refuse a connection to another database, or to one without our schema."""
    key = session.connection
    key = key.connection if isinstance(key, StandIn) else key
    wanted = (session.address.schema, store_id)
    if _checked.get(key) == wanted:
        return
    try:
        theirs = session.value("counter", name="store_id")
    except StoreError as error:
        if getattr(error.__cause__, "sqlstate", None) not in _UNDEFINED:
            raise
        raise UsageError(
            f"connection: it is to {_shown(session)}, where the store's schema "
            f"{session.address.schema} is missing or closed to its user; the store is "
            f"{session.place}"
        ) from error
    if theirs is None:
        raise UsageError(
            f"connection: its transaction began before the queue of {session.place} "
            "was made, and does not see it; roll it back and do all of it again"
        )
    if theirs != store_id:
        raise UsageError(
            f"connection: it is to {_shown(session)}, which holds another queue; the "
            f"store is {session.place}, and only a connection to the same database "
            "can hold its jobs"
        )
    _checked[key] = wanted


def _shown(session: CallerSession) -> str:
    info = session.connection.info
    return f"the database {info.dbname!r} on {info.host or 'a local socket'}"


# -- transactions ------------------------------------------------------------------


@contextmanager
def caller_transaction(database: Database, connection: Any) -> Iterator[None]:
    """Begin a transaction on a caller's connection, and end it.

    Raises:
        UsageError: as `joined`, or a transaction is open already.
        StoreUnavailable: it could not be begun or committed; nothing happened.
        OutcomeUnknown: the connection was lost during the commit.
    """
    library = library_of(connection)
    if library == "sqlalchemy" and hasattr(connection, "begin"):
        if connection.in_transaction():
            raise _is_open()
        with connection.begin():
            yield
        return
    if library == "django":
        raise UsageError(
            "transaction(): use Django's own transaction.atomic(), and "
            ".options(connection=connection) within it"
        )
    if not check_state(connection):
        raise _is_open()
    session = CallerSession(connection, database.address)
    with joined_as(session):
        _check_store(session, database.store_id)
    if library == "psycopg2":
        with _transaction_psycopg2(session):
            yield
        return
    if not connection.autocommit:
        connection.rollback()  # the check above has begun a transaction
    with connection.transaction():
        yield


@contextmanager
def _transaction_psycopg2(session: CallerSession) -> Iterator[None]:
    connection = session.connection
    if connection.autocommit:
        session.run("begin_plain")
    try:
        yield
    except BaseException:
        if connection.autocommit:
            session.run("rollback")
        else:
            connection.rollback()
        raise
    if connection.autocommit:
        _commit(session)
    else:
        connection.commit()


def _is_open() -> UsageError:
    return UsageError(
        "connection: a transaction is already open on it; commit it first, or use "
        "options(connection=...) within it"
    )
