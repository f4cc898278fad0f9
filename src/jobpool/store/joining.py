"""Completing an attempt on its handler's own connection, without a store.

Runs in a child, which never opens the store: all that is known of it is its URL,
and all that is used is the connection that the handler brings.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from jobpool.core.clock import SystemClock
from jobpool.core.job import Enqueued, NewJob
from jobpool.core.running import Claim
from jobpool.errors import JobpoolError, Superseded, UsageError
from jobpool.store.connections import unwrap
from jobpool.store.sqlite.place import identity_of
from jobpool.store.sqlite.session import Session

_SQLITE = "sqlite:///"
_NULL = b"null"


def complete(connection: Any, claim: Claim, result: bytes) -> None:
    """Settle a claimed attempt as succeeded, in the connection's transaction.

    Args:
        connection: the handler's, to the store's database; a transaction is open, or
            the driver opens one with the first statement.
        claim: the attempt and its store.
        result: JSON.

    Raises:
        Superseded: the token is valid no longer; the transaction cannot be committed
            any more.
        UsageError: the connection cannot be used for this; nothing was written.
        StoreError: the statement failed; nothing was written.
    """
    raw = unwrap(connection)
    if claim.store_url.startswith(_SQLITE):
        _complete_sqlite(raw, claim, result)
        return
    from jobpool.store.postgres import guest  # noqa: PLC0415 - psycopg is optional

    guest.complete(raw, claim, result)


def enqueue(connection: Any, claim: Claim, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Store jobs beside a running attempt, in its handler's transaction.

    Args:
        connection: a driver's connection to the attempt's store, on PostgreSQL.
        claim: the attempt and its store.
        jobs: in order.

    Raises:
        Superseded: as `complete`.
        JobpoolError: as of `Store.enqueue`; nothing was stored.
    """
    from jobpool.store.postgres import guest  # noqa: PLC0415 - psycopg is optional

    return guest.enqueue(connection, claim, jobs)


def superseded(claim: Claim) -> Superseded:
    """Return what is raised when a claim's token is valid no longer."""
    return Superseded(
        f"job {claim.job_id} ({claim.kind}) is not this attempt's any more: its lease "
        f"(token {claim.token}) was taken back, or the connection is not to its store "
        f"{claim.store_url}. Nothing of this transaction is kept; end the handler"
    )


def _complete_sqlite(connection: Any, claim: Claim, result: bytes) -> None:
    session = _checked_session(connection, claim.store_url.removeprefix(_SQLITE))
    if not connection.in_transaction:
        if _autocommits(connection):
            raise UsageError(
                "complete(): no transaction is open on this connection, and it commits "
                "each statement by itself; execute BEGIN, then write, complete, COMMIT"
            )
        session.run("begin_deferred")
    session.run("savepoint")
    try:
        done = session.rows(
            "complete_job",
            id=claim.job_id,
            token=claim.token,
            now_ms=SystemClock().utc_ms(),
        )
        if done and result != _NULL:
            session.run("complete_result", id=claim.job_id, result=result)
    except BaseException:
        if connection.in_transaction:
            session.run("rollback_to")
            session.run("release")
        raise
    if not done:
        session.run("rollback")  # all of it: a handler may swallow the error
        raise superseded(claim)
    session.run("release")


def _checked_session(connection: Any, path: str) -> Session:
    if not isinstance(connection, sqlite3.Connection):
        raise UsageError(
            f"complete(): expected a connection to the store's file {path}, got "
            f"{type(connection).__module__}.{type(connection).__name__}"
        )
    session = Session(connection, path)
    try:
        file: bytes = session.value("main_file")
    except JobpoolError as error:
        raise UsageError(
            f"complete(): the connection cannot be used here ({error.__cause__}); pass "
            "an open one, from the thread that made it"
        ) from error
    theirs = os.fsdecode(file or b"")
    if not theirs or identity_of(theirs) != identity_of(path):
        raise UsageError(
            f"complete(): the connection is to {theirs or 'a database in memory'}, but "
            f"the job is in {path}; it can only be completed in a transaction there"
        )
    return session


def _autocommits(connection: sqlite3.Connection) -> bool:
    # Python 3.12 has the attribute autocommit; -1 there means isolation_level counts.
    mode = getattr(connection, "autocommit", -1)
    return connection.isolation_level is None if mode == -1 else bool(mode)
