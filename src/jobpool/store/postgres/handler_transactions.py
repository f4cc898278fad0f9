"""Completing and enqueueing in a handler's own transaction.

The child never opens the store: everything happens on the handler's own connection.

A superseded attempt's transaction is made to fail for good, because its handler may
swallow the error and commit work that another attempt has done as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jobpool.core.application.current import Claim
from jobpool.core.clock import SystemClock
from jobpool.core.jobs.job import Enqueued, Job, NewJob
from jobpool.core.rules.admission import Admission
from jobpool.errors import StoreError, UsageError
from jobpool.store.operations.producers.admission import Entrance
from jobpool.store.postgres.caller_connection import (
    CallerSession,
    check_state,
    joined_as,
)
from jobpool.store.postgres.connection.database import Database
from jobpool.store.postgres.connection.url import read_address
from jobpool.store.postgres.queue_depth import DepthGuard
from jobpool.store.postgres.store import PostgresStore

_NULL = b"null"


class Guest(PostgresStore):
    """The producers' part of a store, on handlers' connections only.

    Args:
        url: the store's, without a password.
        admission: how many jobs may wait before more are refused.
    """

    _WRITES_BESIDE = False

    def __init__(self, url: str, admission: Admission) -> None:
        self._depth = DepthGuard(admission.stored_max)
        self._entrance = Entrance(admission, SystemClock().monotonic_s)
        self._server = Database(read_address(url), None, 0.0)
        self._database = self._server

    @contextmanager
    def _joined(self, connection: Any) -> Iterator[CallerSession]:
        with joined_as(CallerSession(connection, self._server.address)) as session:
            yield session


def enqueue(connection: Any, claim: Claim, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Enqueue within a handler; see `store.handler_transactions.enqueue`."""
    session = CallerSession(connection, read_address(claim.store_url))
    require_transaction(session, "enqueue")
    with joined_as(session):
        is_attempt = session.value("is_attempt", id=claim.job_id, token=claim.token)
    if not is_attempt:
        fail(session, claim)
    return Guest(claim.store_url, claim.admission).enqueue(jobs, connection)


def read(connection: Any, claim: Claim, job_id: int) -> Job | None:
    """Read a job within a handler; see `store.handler_transactions.read`."""
    return Guest(claim.store_url, claim.admission).get(job_id, connection)


def complete(connection: Any, claim: Claim, result: bytes) -> None:
    """Settle a claimed attempt; see `store.handler_transactions.complete`."""
    session = CallerSession(connection, read_address(claim.store_url))
    require_transaction(session, "complete()")
    with joined_as(session):
        done = session.rows(
            "complete_job", id=claim.job_id, token=claim.token, now_ms=None
        )
        if done and result != _NULL:
            session.run("store_result", id=claim.job_id, result=result)
    if not done:
        fail(session, claim)


def require_transaction(session: CallerSession, what: str) -> None:
    """Refuse a connection on which a statement would commit by itself.

    Raises:
        UsageError: it is one, or it cannot be used.
    """
    if check_state(session.connection) and session.connection.autocommit:
        raise UsageError(
            f"{what}: no transaction is open on this connection, and it commits each "
            "statement by itself; open one (`with connection.transaction():`) around "
            "what you write and this call"
        )


def fail(session: CallerSession, claim: Claim) -> None:
    """Keep the handler's transaction from being committed.

    Raises:
        Superseded: always; its message says why.
    """
    try:
        session.run("fail_transaction")
    except StoreError as error:
        raise claim.superseded() from error
