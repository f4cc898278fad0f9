"""Completing and enqueueing on a caller's connection only, without opening the store.

A handler completes its attempt this way, because a child never opens the store. A
producer whose transaction is already open may be the first to use the file: then the
tables are created within it, since no other connection could create them before it
ends. If it is rolled back they are gone, and the next one to open the file creates
them.

A superseded attempt's transaction is rolled back, because its handler may swallow the
error and commit work that another attempt has done as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobpool.core.application.current import Claim
from jobpool.core.clock import Clock, SystemClock
from jobpool.core.rules.admission import Admission
from jobpool.errors import UsageError
from jobpool.store.operations.producers.admission import Entrance
from jobpool.store.sqlite.caller_connection import autocommits, session_on, step, within
from jobpool.store.sqlite.connection.connect import check_library, migrate_within
from jobpool.store.sqlite.connection.database import Database
from jobpool.store.sqlite.connection.location import identity_of, prepare
from jobpool.store.sqlite.connection.session import Session
from jobpool.store.sqlite.queue_depth import DepthGuard
from jobpool.store.sqlite.store import SqliteStore

_NULL = b"null"


class Guest(SqliteStore):
    """The producers' part of a store, within callers' transactions only.

    Args:
        path: of the store's file.
        clock: decides what is due.
        admission: how many jobs may wait before more are refused.
        force_network: accept a network file system.
    """

    def __init__(
        self, path: str, *, clock: Clock, admission: Admission, force_network: bool
    ) -> None:
        check_library()
        path = os.path.realpath(path)
        if identity_of(path) is not None:  # else no connection can be open on it
            prepare(path, create=False, force_network=force_network)
        self._depth = DepthGuard(admission.stored_max, clock)
        self._entrance = Entrance(admission, clock.monotonic_s)
        self._database = self._file = Database(path, clock)

    @contextmanager
    def _joined(self, connection: Any) -> Iterator[Session]:
        path = self._file.path
        session = session_on(connection, path, identity_of(path), "connection")
        with within(session):
            migrate_within(session)
            yield session


def complete(connection: Any, claim: Claim, result: bytes, path: str) -> None:
    """Settle a claimed attempt; see `store.handler_transactions.complete`."""
    session = session_on(connection, path, identity_of(path), "complete()")
    if not connection.in_transaction:
        if autocommits(connection):
            raise UsageError(
                "complete(): no transaction is open on this connection, and it commits "
                "each statement by itself; execute BEGIN, then write, complete, COMMIT"
            )
        session.run("begin_deferred")
    with step(session):
        done = session.rows(
            "complete_job",
            id=claim.job_id,
            token=claim.token,
            now_ms=SystemClock().utc_ms(),
        )
        if done and result != _NULL:
            session.run("store_result", id=claim.job_id, result=result)
    if not done:
        session.run("rollback")
        raise claim.superseded()
