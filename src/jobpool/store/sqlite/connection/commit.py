"""Ending a transaction so that what is said of it stays true.

Theory of operation. SQLite appends a transaction to its log, syncs the log, and then
tells other connections where it ends now. When the sync fails, or that last step,
COMMIT reports an error and nobody sees the transaction; but all of it may stand in the
log, and whoever finds the log after a crash takes it for committed. Something else is
therefore written in its place before the error is passed on. If that cannot be written
either, nobody can say how it ends.

A failed write needs none of this: the part that makes a transaction one is missing.

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
    """Return which file a path names now; as `identity_of`.

    Raises:
        OutcomeUnknown: it cannot be seen whether the commit went to that file.
    """
    try:
        return identity_of(path)
    except StoreUnavailable as error:
        raise OutcomeUnknown(
            f"a transaction was committed to {path}, but that path cannot be looked at "
            "any more: it is not known whether it still names the file that was "
            "written; look before you do it again, or do it under an idempotency key"
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
    """Write a small transaction to where a failed one may stand."""
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
            "transaction could not be taken out of the log: it may come to light when "
            "the file is opened next; look before you do it again, or do it under an "
            "idempotency key"
        ) from error
