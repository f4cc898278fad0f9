"""Translates SQLite's errors to jobpool's: what was seen, and what to do about it."""

from __future__ import annotations

import sqlite3

from jobpool.errors import (
    JobpoolBug,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from jobpool.store.statements.integrity import RowRefused

_DATA = (
    "a value violates the table's own rules; another program has written it. Find it "
    "with `PRAGMA integrity_check` and correct it, or restore a backup"
)
_RANGE = (
    "a value is larger than SQLite can hold; nothing was changed. Use a smaller one"
)
_FULL = "there is no room on its disk; make room, then try again"
_REASONS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: (StoreFull, _FULL),
    # The index of the WAL could not grow: on a full disk this comes first.
    sqlite3.SQLITE_IOERR_SHMSIZE: (StoreFull, _FULL),
    sqlite3.SQLITE_BUSY: (
        StoreUnavailable,
        (
            "another program holds a transaction open for longer than this connection "
            "waits (jobpool's own 5 s); find it with `fuser` or `lsof` on the file and "
            "let it commit"
        ),
    ),
    sqlite3.SQLITE_LOCKED: (
        StoreUnavailable,
        "another statement of this process holds the table; try again",
    ),
    sqlite3.SQLITE_READONLY: (
        StoreUnavailable,
        (
            "it has become read-only; give this user write permission on the file and "
            "its directory"
        ),
    ),
    sqlite3.SQLITE_IOERR: (
        StoreUnavailable,
        "its disk reported an error; check the kernel's log, then try again",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        StoreUnavailable,
        (
            "the file cannot be opened; check that it and its directory exist, may be "
            "written by this user, and that the process has file descriptors left"
        ),
    ),
    sqlite3.SQLITE_PROTOCOL: (
        StoreUnavailable,
        "its lock is contended beyond SQLite's patience; try again",
    ),
    sqlite3.SQLITE_NOMEM: (StoreUnavailable, "this process is out of memory"),
    sqlite3.SQLITE_INTERRUPT: (StoreUnavailable, "the statement was interrupted"),
    sqlite3.SQLITE_PERM: (
        StoreUnavailable,
        "this user may not access it; give it read and write permission",
    ),
    sqlite3.SQLITE_CONSTRAINT: (RowRefused, _DATA),
    sqlite3.SQLITE_MISMATCH: (RowRefused, _DATA),
    sqlite3.SQLITE_TOOBIG: (StoreRefused, _RANGE),
    sqlite3.SQLITE_NOTADB: (
        StoreRefused,
        "it is not a SQLite database (or an encrypted one); name another file",
    ),
    sqlite3.SQLITE_CORRUPT: (
        StoreRefused,
        (
            "it is damaged; stop every supervisor, keep a copy, and recover it with "
            "`sqlite3 FILE .recover` or from a backup"
        ),
    ),
}
_DEFENSIVE = "table sqlite_master may not be modified"
MOVED = "jobpool: this queue was moved to "
"""What the triggers of a moved queue say, before the new address."""
REOPEN_AFTER = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        # It may be the connection's own lock, which it failed to release.
        sqlite3.SQLITE_PROTOCOL,
        # SQLite opens a file read-only when it cannot open it for writing just then.
        sqlite3.SQLITE_READONLY,
    }
)
"""After these the connection's view of the file can no longer be trusted.

A failed fsync in particular must not be retried: the kernel has marked the
pages clean. Source: "Can Applications Recover from fsync Failures?", ATC '20.
"""


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code, or 0 if the module itself raised."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: Exception) -> bool:
    """Say whether a statement met another transaction, which will end soon."""
    return isinstance(error, sqlite3.Error) and (
        primary_code(error) == sqlite3.SQLITE_BUSY and not _is_stale(error)
    )


def _is_stale(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return bool(code == sqlite3.SQLITE_BUSY_SNAPSHOT)


def explain(error: Exception, path: str, table: str = "") -> StoreError | JobpoolBug:
    """Return the error to raise instead of *error*; the caller chains it.

    Args:
        error: as the sqlite3 module raised it; OverflowError means a number beyond 64
            bits.
        path: the database's file, for the message.
        table: the statement's table, for the message; "" if there is none.
    """
    where = f"{path}, table {table}," if table else path
    if not isinstance(error, sqlite3.Error):
        return StoreRefused(f"the store {where} could not be used: {_RANGE}")
    if str(error).startswith(MOVED):
        return StoreRefused(
            f"the store {path} is closed: {str(error).removeprefix('jobpool: ')}"
            "; use that URL, or abandon an unfinished move with `jobpool move --from "
            f"sqlite:///{path} --abandon`"
        )
    if str(error) == _DEFENSIVE:
        return StoreRefused(
            f"the store {path} is of an older jobpool or new, and cannot be brought up "
            "to date here: this SQLite is in its defensive mode, in which no program "
            "may edit a table's rules. Nothing was changed. Run `jobpool migrate` on "
            "this file with a Python whose SQLite is not (python.org's, Debian's, uv's)"
        )
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if _is_stale(error):
        return StoreUnavailable(
            f"the store {where} could not be used ({name}): this "
            "transaction began by reading, and another one has written since. Roll it "
            "back and try all of it again; one that begins with BEGIN IMMEDIATE or "
            "jobs.transaction(connection) avoids this"
        )
    code = getattr(error, "sqlite_errorcode", 0)
    known = _REASONS.get(code) or _REASONS.get(primary_code(error))
    if known is None and str(error) == "database or disk is full":
        known = (StoreFull, _FULL)
    if known is None:
        return JobpoolBug(
            f"SQLite refused one of jobpool's own statements on {path} "
            f"({name}: {error}); please report this"
        )
    kind, remedy = known
    return kind(f"the store {where} could not be used ({name}): {remedy}")
