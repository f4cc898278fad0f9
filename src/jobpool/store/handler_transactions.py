"""Completes an attempt on its handler's own connection, without a store.

Runs in a child, which never opens the store: it knows the store's URL and uses the
connection that the handler passes, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobpool.core.application.current import Claim
from jobpool.core.jobs.job import Enqueued, Job, NewJob
from jobpool.store.callers.unwrap import unwrap

_SQLITE = "sqlite:///"


def complete(connection: Any, claim: Claim, result: bytes) -> None:
    """Settle a claimed attempt as succeeded, in the connection's transaction.

    Args:
        connection: the handler's, to the store's database; a transaction is open, or
            the driver opens one with the first statement.
        claim: the attempt and its store.
        result: JSON.

    Raises:
        Superseded: the token is no longer valid; the transaction cannot be committed.
        UsageError: the connection cannot be used for this; nothing was written.
        StoreError: the statement failed; nothing was written.
    """
    raw = unwrap(connection)
    if claim.store_url.startswith(_SQLITE):
        from jobpool.store.sqlite import handler_transactions as file_guest  # noqa: PLC0415 - as psycopg

        file_guest.complete(raw, claim, result, claim.store_url.removeprefix(_SQLITE))
        return
    from jobpool.store.postgres import handler_transactions  # noqa: PLC0415 - psycopg is optional

    handler_transactions.complete(raw, claim, result)


def enqueue(connection: Any, claim: Claim, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Enqueue jobs in the transaction of a running attempt's handler.

    Args:
        connection: a driver's connection to the attempt's store, on PostgreSQL.
        claim: the attempt and its store.
        jobs: in order.

    Raises:
        Superseded: as `complete`.
        JobpoolError: as of `Store.enqueue`; nothing was stored.
    """
    from jobpool.store.postgres import handler_transactions  # noqa: PLC0415 - psycopg is optional

    return handler_transactions.enqueue(connection, claim, jobs)


def read(connection: Any, claim: Claim, job_id: int) -> Job | None:
    """Return a job as the transaction of a running attempt's handler sees it.

    Args:
        connection: a driver's connection to the attempt's store, on PostgreSQL.
        claim: the attempt and its store.
        job_id: the job.

    Raises:
        UsageError: the connection cannot be used.
        StoreError: the job could not be read.
    """
    from jobpool.store.postgres import handler_transactions  # noqa: PLC0415 - psycopg is optional

    return handler_transactions.read(connection, claim, job_id)
