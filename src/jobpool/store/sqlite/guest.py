"""What a handler does to the store's file in its own transaction, beside its attempt.

The child never opens the store: everything happens on the handler's own connection.

A superseded attempt's transaction is rolled back, because a handler may swallow the
error and commit what another attempt has done as well.
"""

from __future__ import annotations

from typing import Any

from jobpool.core.clock import SystemClock
from jobpool.core.running import Claim
from jobpool.errors import UsageError
from jobpool.store.joining import superseded
from jobpool.store.sqlite.joining import autocommits, session_on, step
from jobpool.store.sqlite.place import identity_of

_NULL = b"null"


def complete(connection: Any, claim: Claim, result: bytes, path: str) -> None:
    """Settle a claimed attempt; see `store.joining.complete`."""
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
        raise superseded(claim)
