"""Opens a connection with durable settings, and migrates the schema."""

from __future__ import annotations

import os
import sqlite3
from urllib.parse import quote

from jobpool.errors import StoreRefused, StoreUnavailable
from jobpool.store.sqlite.connection.errors import explain
from jobpool.store.sqlite.connection.location import OPENING, Identity, identity_of
from jobpool.store.sqlite.connection.session import BUSY_CHECK_S, Session
from jobpool.store.statements.formats import refuse_too_new
from jobpool.store.statements.named_sql import load_migrations

OLDEST = (3, 35, 0)
"""The first SQLite with RETURNING."""
BUSY_TIMEOUT_S = 5.0
_SETTINGS = (
    "set_synchronous",
    "set_temp_store",
    "set_mmap_size",
    "set_journal_size_limit",
    "set_autocheckpoint",
    "set_secure_delete",
)


def check_library(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Refuse a SQLite library that cannot run jobpool's statements.

    Raises:
        StoreRefused: it is older than 3.35.
    """
    if version < OLDEST:
        raise StoreRefused(
            f"Python uses SQLite {'.'.join(map(str, version))}; jobpool needs 3.35 or "
            "newer: use a newer Python build or system library"
        )


def connect(path: str) -> tuple[Session, Identity]:
    """Open an existing file.

    Args:
        path: absolute.

    Returns:
        A session on a connection with jobpool's settings, and the file's identity.

    Raises:
        StoreUnavailable: the file is gone, was just replaced, or cannot be opened.
        StoreRefused: it is not a database, or damaged.
    """
    # Decoded leniently below: a text written in Latin-1 must not stop a lease.
    with OPENING:
        before = identity_of(path)
        if before is None:
            raise replaced(path)
        try:
            connection = sqlite3.connect(
                f"file:{quote(os.fsencode(path))}?mode=rw",
                uri=True,
                timeout=min(BUSY_CHECK_S, BUSY_TIMEOUT_S),
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        except sqlite3.Error as error:
            raise explain(error, path) from error
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    session = Session(connection, path, BUSY_TIMEOUT_S)
    try:
        for name in _SETTINGS:
            session.rows(name)
        session.rows("schema_objects")  # Reads the header: refused if foreign.
        after = identity_of(path)
    except BaseException:
        connection.close()
        raise
    if after != before:
        connection.close()
        raise replaced(path)
    return session, before


def replaced(path: str) -> StoreUnavailable:
    """Return the error for a file that is no longer the one that is open."""
    return StoreUnavailable(
        f"the database file {path} was replaced, moved or deleted while in use; the "
        "operation did not happen. Stop everything that uses it, put the right file "
        "back, and start again"
    )


def schema_version(session: Session) -> int:
    """Return the schema's version, 0 for a file without jobpool's tables.

    A newer one is fine: what newer code has added is not in the way.

    Raises:
        StoreRefused: the tables are not jobpool's, or this code cannot honour them.
    """
    _, ours = session.rows("schema_objects")[0]
    if not ours:
        return 0
    is_meta = session.value("has_meta") == len(("name", "value"))
    version = session.value("schema_version") if is_meta else None
    if not isinstance(version, int):
        raise StoreRefused(
            f"the database {session.path} has tables called jobpool_… that are not "
            "jobpool's (jobpool_meta names no schema version); name another file"
        )
    refuse_too_new(session, version)
    return version


def migrate(session: Session) -> None:
    """Bring the schema up to date, one transaction per step.

    The caller must hold the writers' lock.

    Raises:
        StoreRefused: as `schema_version`.
        StoreError: a step failed; the schema is as it was before that step.
    """
    steps = load_migrations("sqlite")
    tables, _ = session.rows("schema_objects")[0]
    if session.value("set_wal") != "wal":
        raise StoreRefused(
            f"the database {session.path} cannot use a write-ahead log here; use a "
            "local disk that supports shared memory"
        )
    if not tables:
        session.rows("set_application_id")
    while schema_version(session) < len(steps):
        session.run("begin")
        try:
            # Checked again: a caller's transaction, which takes no writers' lock, may
            # have created the tables in the meantime.
            migrate_within(session, steps=1)
            session.run("commit")
        except BaseException:
            if session.connection.in_transaction:
                session.run("rollback")
            raise


def migrate_within(session: Session, steps: int | None = None) -> None:
    """Bring the schema up to date within the transaction that is open.

    Args:
        session: its connection.
        steps: at most this many; None: all that are missing.

    Raises:
        StoreRefused: as `schema_version`.
        StoreError: a step failed; roll back the transaction or a savepoint.
    """
    done = schema_version(session)
    for number, script in enumerate(load_migrations("sqlite")[done:][:steps], done + 1):
        try:
            _run_script(session, script)
        except BaseException:
            session.rows("protect_schema")  # A caller goes on with this connection.
            raise
        session.run("set_schema_version", version=number)


def _run_script(session: Session, script: str) -> None:
    # Not executescript(): it would commit the transaction first.
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            try:
                sqlite3.Connection.execute(session.connection, statement)
            except sqlite3.Error as error:
                raise explain(error, session.path) from error
            statement = ""
