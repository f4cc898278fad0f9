"""Sessions on a caller's own connection: is it to our file, and how does it commit?

Theory of operation. The caller's connection may be of any kind: legacy isolation
(Python begins a transaction before a write), autocommit, Python 3.12's
``autocommit=False``, with its own row and text factories, read-only, closed, or of
another thread. Jobs written through it belong to its transaction. The writers' lock is
never taken inside that transaction (see `write_lock` for the order), so only
`caller_transaction` lets such a transaction wait for its turn.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobpool.errors import JobpoolError, UsageError
from jobpool.store.sqlite.connection.commit import commit, identity_after_commit
from jobpool.store.sqlite.connection.connect import replaced
from jobpool.store.sqlite.connection.database import Database
from jobpool.store.sqlite.connection.errors import primary_code
from jobpool.store.sqlite.connection.location import Identity, identity_of
from jobpool.store.sqlite.connection.session import Session


def session_on(
    connection: Any, path: str, identity: Identity | None, what: str
) -> Session:
    """Return a session on a caller's connection to a file.

    Args:
        connection: the caller's.
        path: of the store's file.
        identity: of that file.
        what: the call or argument that it was passed to, for the error.

    Raises:
        UsageError: it is not an sqlite3 connection, is closed, belongs to another
            thread, or is to another file; nothing was done on it.
    """
    if not isinstance(connection, sqlite3.Connection):
        raise UsageError(
            f"{what}: expected a sqlite3.Connection to {path}, got "
            f"{type(connection).__module__}.{type(connection).__name__}; with an ORM "
            "pass the connection below it"
        )
    session = Session(connection, path)
    try:
        file: bytes = session.value("main_file")
    except JobpoolError as error:
        raise UsageError(
            f"{what}: the connection cannot be used here ({error.__cause__}); pass an "
            "open connection, from the thread that made it"
        ) from error
    theirs = os.fsdecode(file or b"")
    if not theirs or identity_of(theirs) != identity:
        raise UsageError(
            f"{what}: the connection is to {theirs or 'a database in memory'}, but "
            f"the store is {path}; only a connection to the same file can be used"
        )
    return session


def checked_session(database: Database, connection: Any) -> Session:
    """Return a session on a caller's connection to an open database.

    Raises:
        UsageError: as `session_on`.
    """
    return session_on(connection, database.path, database.identity, "connection")


@contextmanager
def joined(database: Database, connection: Any) -> Iterator[Session]:
    """Use a caller's connection for one method; the caller commits what it wrote.

    In autocommit mode without an open transaction, the method commits by itself, as the
    caller's own statements would.

    Raises:
        UsageError: as `checked_session`, or the connection is read-only.
    """
    session = checked_session(database, connection)
    is_ours = not connection.in_transaction
    if is_ours:
        session.run("begin" if autocommits(connection) else "begin_deferred")
    try:
        with within(session):
            yield session
        if is_ours and autocommits(connection):
            _commit(database, session)
    except BaseException:
        if is_ours and connection.in_transaction:
            session.run("rollback")
        raise


@contextmanager
def within(session: Session) -> Iterator[None]:
    """Use a savepoint in a caller's open transaction: all of it happens or nothing.

    Raises:
        UsageError: the connection is read-only.
    """
    try:
        with step(session):
            yield
    except JobpoolError as error:
        if _is_read_only(error):
            raise UsageError(
                f"connection: it is read-only; open {session.path} for writing"
            ) from error
        raise


@contextmanager
def step(session: Session) -> Iterator[None]:
    """Use a savepoint in an open transaction: all of it happens or nothing."""
    session.run("savepoint")
    try:
        yield
    except BaseException:
        if session.connection.in_transaction:
            session.run("rollback_to")
            session.run("release")
        raise
    session.run("release")


def _commit(database: Database, session: Session) -> None:
    if identity_of(database.path) != database.identity:
        raise replaced(database.path)
    commit(session)
    if identity_after_commit(database.path) != database.identity:
        raise replaced(database.path)


def autocommits(connection: sqlite3.Connection) -> bool:
    """Say whether a statement commits by itself while no transaction is open."""
    # Python 3.12 has the attribute autocommit; -1 means that isolation_level counts.
    mode = getattr(connection, "autocommit", -1)
    return connection.isolation_level is None if mode == -1 else bool(mode)


def _is_read_only(error: BaseException) -> bool:
    cause = error.__cause__
    return (
        isinstance(cause, sqlite3.Error)
        and primary_code(cause) == sqlite3.SQLITE_READONLY
    )


@contextmanager
def caller_transaction(database: Database, connection: Any) -> Iterator[None]:
    """Begin a transaction on a caller's connection in its turn, and end it.

    Raises:
        UsageError: as `checked_session`, or a transaction is already open.
        StoreUnavailable: it could not be begun or committed; nothing happened.
        OutcomeUnknown: its commit failed such that it may or may not have happened.
    """
    session = checked_session(database, connection)
    if connection.in_transaction:
        raise UsageError(
            "connection: a transaction is already open on it; commit it first, or use "
            "options(connection=...) within it. A connection with autocommit=False "
            "is always in one: use isolation_level=None or autocommit=True"
        )
    with database.writers.held():
        session.run("begin")
        try:
            yield
            if connection.in_transaction:
                _commit(database, session)
        except BaseException:
            if connection.in_transaction:
                session.run("rollback")
            raise
