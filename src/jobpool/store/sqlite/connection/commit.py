"""Commits a transaction so that the reported outcome stays true.

Theory of operation. SQLite appends a transaction to its log, syncs the log, and then
publishes the log's new end to other connections. If the sync or that last step fails,
COMMIT reports an error and no connection sees the transaction; but all of it may be in
the log, and recovery after a crash would take it for committed. So something else is
written in its place before the error is passed on. If that fails too, the outcome is
unknown.

A failed write needs none of this: the frame that completes the transaction is missing.

Source: https://www.sqlite.org/fileformat2.html, "WAL File Format".
"""

from __future__ import annotations

import sqlite3

from jobpool.errors import OutcomeUnknown, StoreError, StoreUnavailable
from jobpool.store.sqlite.connection.errors import primary_code
from jobpool.store.sqlite.connection.location import Identity, identity_of
from jobpool.store.sqlite.connection.session import Session

_NOTHING_WRITTEN = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL})


def commit(session: Session) -> None:
    """Commit the open transaction.

    Raises:
        StoreUnavailable: nothing happened.
        OutcomeUnknown: it may or may not have happened.
    """
    try:
        session.run("commit")
    except StoreError as error:
        if _may_be_in_log(error):
            _overwrite(session, error)
        raise


def identity_after_commit(path: str) -> Identity | None:
    """Return which file a path names now; like `identity_of`.

    Raises:
        OutcomeUnknown: the path cannot be checked, so the commit may have gone to
            another file.
    """
    try:
        return identity_of(path)
    except StoreUnavailable as error:
        raise OutcomeUnknown(
            f"a transaction was committed to {path}, but that path can no longer be "
            "checked: it is not known whether it still names the file that was "
            "written; check before you do it again, or do it under an idempotency key"
        ) from error


def _may_be_in_log(error: StoreError) -> bool:
    cause = error.__cause__
    if not isinstance(cause, sqlite3.Error):
        return True
    return (
        primary_code(cause) not in _NOTHING_WRITTEN
        and cause.sqlite_errorcode != sqlite3.SQLITE_IOERR_WRITE
    )


def _overwrite(session: Session, error: StoreError) -> None:
    """Overwrite a failed transaction that may be in the log with a small one."""
    try:
        if session.connection.in_transaction:
            session.run("rollback")
        session.run("begin")
        session.run("overwrite")
        session.run("commit")
    except StoreError as second:
        error.add_note(f"then: {second}")
        raise OutcomeUnknown(
            f"the disk of the store {session.path} failed during a commit, and the "
            "transaction could not be removed from the log: it may appear when the "
            "file is opened next; check before you do it again, or do it under an "
            "idempotency key"
        ) from error
