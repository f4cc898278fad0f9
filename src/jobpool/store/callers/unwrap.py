"""Finds the driver's connection below SQLAlchemy's or Django's.

Theory of operation. None of these libraries is imported here: a type is recognised by
the module that defines it. SQLAlchemy is made to begin its transaction before its
driver's connection is used, or it would not commit what we write there.
"""

from __future__ import annotations

from typing import Any

from jobpool.errors import UsageError

POSTGRES = frozenset({"psycopg", "psycopg2", "jobpool"})
"""Libraries with connections to PostgreSQL; jobpool's are stand-ins for psycopg's."""
_LIBRARIES = (
    *("sqlalchemy", "django", "psycopg", "psycopg2"),
    *("sqlite3", "aiosqlite", "jobpool"),
)


def library_of(connection: Any) -> str:
    """Return the first part of the module that defines a connection's type.

    For a caller's own subclass it is that of the nearest base class that is known.
    """
    for base in type(connection).__mro__:
        name = base.__module__.partition(".")[0]
        if name in _LIBRARIES:
            return name
    return type(connection).__module__.partition(".")[0]


def unwrap(connection: Any) -> Any:
    """Return the driver's connection below a caller's, in the caller's transaction.

    Raises:
        UsageError: it is asynchronous, or wraps nothing that can be used here.
    """
    if is_async(connection):
        raise UsageError(
            f"connection: {_name(connection)} is asynchronous; use "
            "`await ....enqueue_async(...)` or `await current().complete_async(...)` "
            "with it"
        )
    match library_of(connection):
        case "sqlalchemy":
            return below_sqlalchemy(connection)
        case "django":
            return _below_django(connection)
        case _:
            return connection


def is_async(connection: Any) -> bool:
    """Say whether a connection or session must be awaited."""
    library = library_of(connection)
    if library not in {"psycopg", "sqlalchemy"}:
        return library == "aiosqlite"
    names = {base.__name__ for base in type(connection).__mro__}
    return bool(names & {"AsyncConnection", "AsyncSession", "async_scoped_session"})


def has_transaction(connection: Any) -> bool:
    """Say whether a driver's connection has a transaction open."""
    if library_of(connection) in POSTGRES:
        return bool(connection.info.transaction_status)
    return bool(getattr(connection, "in_transaction", False))


def below_sqlalchemy(connection: Any) -> Any:
    """Return the driver's connection, after SQLAlchemy has begun a transaction."""
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


def _below_django(connection: Any) -> Any:
    """Return the driver's connection below ``django.db.connection`` or another."""
    connection.ensure_connection()
    return connection.connection


def _name(connection: Any) -> str:
    return f"{type(connection).__module__}.{type(connection).__name__}"
