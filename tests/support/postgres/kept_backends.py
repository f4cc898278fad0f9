"""Backends of PostgreSQL that one test's store after another uses.

Theory of operation. A backend begins without any of the catalogue in its memory, and
takes several times longer for its first statements of a kind than for the next ones.
Here, a store that closes its connection leaves the backend to the next store, which
gets a connection object of its own, after all that a session may have set is discarded.
A connection that was lost, or is within a transaction, is closed as ever. In a forked
child all is as ever: what is kept there belongs to the parent.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.pq import ConnStatus, PGconn, PipelineStatus, TransactionStatus

from jobpool.store.postgres.connection import connect
from jobpool.store.postgres.connection.connect import BoundedConnection
from jobpool.store.postgres.connection.url import Address

IDLE_MAX = 8
"""A backend takes some MiB."""


class KeptBackends:
    """Keeps what is closed, and gives it to who opens the next connection."""

    def __init__(self) -> None:
        self._idle: defaultdict[str, list[PGconn]] = defaultdict(list)
        self._dead = PGconn.connect(b"host=/nowhere")
        self._pid = os.getpid()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let all stores of this process use them meanwhile."""
        opening, closing = connect._open, BoundedConnection.close
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connect, "_open", self._opener(opening))
            patch.setattr(BoundedConnection, "close", self._closer(closing))
            yield

    def close(self) -> None:
        """Close them: a server that is to stop may wait for that."""
        for idle in self._idle.values():
            while idle:
                idle.pop().finish()

    def _opener(self, opening: Callable) -> Callable:
        def opened(address: Address, patience_s: float) -> BoundedConnection:
            if os.getpid() != self._pid:
                return opening(address, patience_s)
            if idle := self._idle[address.conninfo]:
                made = BoundedConnection(idle.pop())
                made.autocommit = True
                made.patience_s = patience_s
            else:
                made = opening(address, patience_s)
            made.kept_for = address.conninfo
            return made

        return opened

    def _closer(self, closing: Callable) -> Callable:
        def close(connection: BoundedConnection) -> None:
            conninfo = getattr(connection, "kept_for", None)
            if conninfo is not None and os.getpid() == self._pid:
                idle = self._idle[conninfo]
                if len(idle) < IDLE_MAX and _as_new(connection):
                    pgconn, connection.pgconn = connection.pgconn, self._dead
                    idle.append(pgconn)
            closing(connection)

        return close


def _as_new(connection: BoundedConnection) -> bool:
    """Discard what the session has set; say whether the backend can be used again."""
    pgconn = connection.pgconn
    if (
        pgconn.status != ConnStatus.OK
        or pgconn.transaction_status != TransactionStatus.IDLE
        or pgconn.pipeline_status != PipelineStatus.OFF
    ):
        return False
    try:
        connection.execute("DISCARD ALL")
    except psycopg.Error:
        return False
    return True
