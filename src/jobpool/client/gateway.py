"""The client's one way to the store: through the supervisor inside a child.

Theory of operation. In an ordinary process the gateway opens the store and writes
to it. In a child it never does: jobs go over the child's channel to the supervisor,
which commits them and answers, a job is read the same way, and everything else that
needs the store is refused with a remedy. A process that jobpool started but where no
attempt runs (a zygote that imports the application, say) may do neither: code at a
module's top level that enqueues would otherwise enqueue anew with every child, for
ever.

While a thread has a transaction of the caller's open, that thread holds the store's
writers' lock and the database's write lock. A write of ours beside it would wait
for the caller, who waits for it: it is refused instead.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jobpool.client.ending import there_is
from jobpool.client.opening import LazyStore
from jobpool.core.job import Enqueued, Job, NewJob
from jobpool.core.running import Channel, channel
from jobpool.errors import UsageError
from jobpool.store import connections, joining
from jobpool.store.base import Store
from jobpool.store.checking import is_id

RUN_MARKER = "JOBPOOL_RUN"
"""In the environment of every process that a supervisor has started."""


class Gateway:
    """Stores jobs, and opens the store for reading.

    Args:
        argument: the store's URL as the application names it, if it does.
    """

    def __init__(self, argument: str | None) -> None:
        self._lazy = LazyStore(argument)
        self._local = threading.local()

    def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        """Store jobs; errors as of `Store.enqueue`, or UsageError in a wrong place."""
        way = channel()
        if way is not None:
            if connection is None:
                return way.enqueue(jobs)
            return self._enqueue_beside(way, jobs, connection)
        self._refuse_in_started_process("enqueue")
        if connection is None:
            self.refuse_in_transaction("enqueue")
            return self._lazy.get().enqueue(jobs, rings=True)
        held = getattr(self._local, "held", None)
        if held is not None and held[0] is connection and held[1] != os.getpid():
            raise UsageError(
                "connection: its transaction was begun before this process was forked, "
                "and belongs to the parent; use a connection of this process's own"
            )
        connection = connections.unwrap(connection)
        store = self._lazy.joining(connection)
        stored = store.enqueue(jobs, connection)
        if not connections.has_transaction(connection):
            store.ring()  # else it is too early: nothing is committed yet
        return stored

    async def enqueue_async(
        self, jobs: Sequence[NewJob], connection: Any = None
    ) -> list[Enqueued]:
        """Store jobs without blocking the event loop; otherwise as `enqueue`."""
        from jobpool.store import standin  # noqa: PLC0415 - see there

        return await standin.call_async(
            connection, lambda stand_in: self.enqueue(jobs, stand_in)
        )

    def _enqueue_beside(
        self, way: Channel, jobs: Sequence[NewJob], connection: Any
    ) -> list[Enqueued]:
        """Store jobs in the transaction of a handler."""
        claim = way.claim()
        url = self._lazy.settings.store if claim is None else claim.store_url
        if not url.startswith("postgres"):
            raise UsageError(
                "connection= cannot be used inside a handler with a SQLite store: "
                "there the supervisor stores jobs, not your transaction; nothing was "
                "enqueued. Commit first, then enqueue without it, with key= against "
                "doubles"
            )
        if claim is None:
            return way.enqueue(jobs)
        return joining.enqueue(connections.unwrap(connection), claim, jobs)

    def read(self, job_id: int) -> Job:
        """Return a job as stored; inside a handler, through its supervisor.

        Raises:
            JobNotFound: no job has this id.
            UsageError: a process that jobpool started, outside of any handler; or the
                handler's pool is strict.
            StoreError: the store could not be read.
        """
        way = channel()
        if way is None:
            store = self.store("reading a job")
            return there_is(store.get(job_id), store.url)
        claim = way.claim()
        url = "the store of this handler's supervisor" if not claim else claim.store_url
        return there_is(way.read(job_id) if is_id(job_id) else None, url)

    def store(self, what: str) -> Store:
        """Return the store for reading or for an operator's step.

        Args:
            what: what it is wanted for, for the message.

        Raises:
            UsageError: this is a child or another process that jobpool started.
            StoreError: the store cannot be opened.
        """
        if channel() is not None:
            raise UsageError(
                f"{what} does not work inside a handler: children never open the "
                "store, and a job that waits for another holds its slot. Enqueue the "
                "rest of the work as a job of its own instead; jobs.get(id) and "
                "result(timeout=0) look once, and do work"
            )
        self._refuse_in_started_process(what)
        return self._lazy.get()

    @contextmanager
    def transaction(self, connection: Any) -> Iterator[None]:
        """Hold a transaction of the caller's, as `JobPool.transaction` says."""
        store = self.store("transaction()")
        self.refuse_in_transaction("transaction()")
        with store.caller_transaction(connection):
            self._local.held = connection, os.getpid()
            try:
                yield
            finally:
                self._local.held = None

    def refuse_in_transaction(self, what: str) -> None:
        """Refuse a write that would wait for this thread's own transaction.

        Raises:
            UsageError: this thread is inside `transaction`.
        """
        held = getattr(self._local, "held", None)
        if held is not None and held[1] == os.getpid():
            raise UsageError(
                f"{what} inside `with jobs.transaction(connection)` would wait for "
                "that transaction for ever; use .options(connection=connection) there, "
                "or do it after the block"
            )

    def payload_max_bytes(self) -> int:
        """Return the most bytes that arguments may take.

        Raises:
            ConfigError: the configuration is wrong.
        """
        way = channel()
        claim = None if way is None else way.claim()
        return (claim or self._lazy.settings).payload_max_bytes

    @property
    def argument(self) -> str | None:
        """The store's URL as the application names it, if it does."""
        return self._lazy.argument

    def close(self) -> None:
        """Close the store if it is open; the next use opens it again."""
        self._lazy.close()

    def _refuse_in_started_process(self, what: str) -> None:
        if RUN_MARKER in os.environ:
            raise UsageError(
                f"{what} was called in a process that jobpool started, outside of any "
                "handler (at import, in a hook, or in a program that a handler runs); "
                "every new child would do it again. Do it inside a handler, or under "
                '`if __name__ == "__main__":`'
            )
