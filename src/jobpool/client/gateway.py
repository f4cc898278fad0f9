"""Gateway: the client's only access to the store; in a child, through the supervisor.

Theory of operation. In an ordinary process the gateway opens the store and writes
to it. In a child it never does: jobs go over the child's channel to the supervisor,
which commits them and answers. A job is read the same way, and everything else that
needs the store is refused with a remedy. A process that jobpool started but where no
attempt runs (such as a zygote that imports the application) may do neither: otherwise
code that enqueues at a module's top level would do so again with every child, for ever.

While a thread has a transaction on the caller's connection open, it holds the store's
writers' lock and the database's write lock. Another write by jobpool in that thread
would wait for the transaction, which waits for it: the write is refused instead.

The configuration is found at the first use, so that a JobPool can be made at import,
and kept until `close`. In a child the supervisor's values apply: they may come from a
flag, and an enclosed child may not see the file.

The modules of the configuration and of the databases are imported at the first use
too. They are half of what jobpool loads, and many programs that import handlers use
neither: a child, a web server's master process, a test.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from msgspec.structs import replace

from jobpool.client.encoding import Encoding
from jobpool.core.application.current import RUN_VARIABLE, Channel, channel
from jobpool.core.application.current_span import current_trace
from jobpool.core.config.settings import ClientSettings
from jobpool.core.jobs.job import Enqueued, Job, NewJob
from jobpool.core.jobs.ref import FLOW
from jobpool.core.jobs.uniform_batch import UniformJobs
from jobpool.errors import ConfigError, JobNotFound, UsageError
from jobpool.store import handler_transactions
from jobpool.store.callers import unwrap
from jobpool.store.statements.validation import is_id

if TYPE_CHECKING:
    from jobpool.core.jobs.flow import EnqueuedFlow, NewFlow
    from jobpool.store.protocol import Store

T = TypeVar("T")
Told = Callable[[Sequence[Enqueued]], object]
Around = Callable[["Sequence[NewJob] | NewFlow"], AbstractContextManager[Told]]
_NOTHING: AbstractContextManager[Told] = nullcontext(lambda _stored: None)


class Gateway:
    """Stores jobs, and opens the store for reading.

    Args:
        argument: the store's URL that the application names, if any.
        encoding: what jobs pass through.
    """

    def __init__(self, argument: str | None, encoding: Encoding | None = None) -> None:
        self._lazy = LazyStore(argument)
        self._local = threading.local()
        self.encoding = encoding or Encoding()
        self.before_enqueue: list[Callable[[NewJob], None]] = []
        """Called with each job; what they raise refuses it and those with it."""
        self.around: Around = _alone
        """Called with what is to be stored, which happens in the context it returns;
        there it is told of jobs that were."""
        self.pools: set[str] = set()
        """Those of the application's handlers, and others that were found to exist."""

    def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        """Store jobs; errors as for `Store.enqueue`, or UsageError in a wrong place."""
        with self.around(jobs) as told:
            jobs = _in_trace(jobs)
            self._tell(jobs)
            if self.encoding.codec is None:
                stored = self._enqueue(jobs, connection)
            else:
                stored = self.encoding.enqueue(
                    lambda each: self._enqueue(each, connection), jobs
                )
            told(stored)
        return stored

    def _enqueue(self, jobs: Sequence[NewJob], connection: Any) -> list[Enqueued]:
        way = channel()
        if way is not None:
            if connection is None:
                return way.enqueue(jobs)
            return self._enqueue_beside(way, jobs, connection)
        self._refuse_in_started_process("enqueue")
        if connection is None:
            self.refuse_in_transaction("enqueue")
            return self._lazy.get().enqueue(jobs, wakes=True)
        connection = self._joined(connection)
        store = self._lazy.joining(connection)
        stored = store.enqueue(jobs, connection)
        if not unwrap.has_transaction(connection):
            store.wake()  # else it is too early: nothing is committed yet
        return stored

    def _tell(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Return jobs, after all was called that is to be called before."""
        for tell in self.before_enqueue:
            for job in jobs:
                tell(job)
        return jobs

    def enqueue_flow(
        self,
        flow: NewFlow,
        members: Iterable[tuple[int, NewJob]],
        connection: Any = None,
    ) -> EnqueuedFlow:
        """Store a flow; errors as for `Store.enqueue_flow`.

        Raises:
            UsageError: also in a wrong place, or with a connection in a handler.
        """
        with self.around(flow):
            each = ((n, self._tell(_in_trace((job,)))[0]) for n, job in members)
            return self._enqueue_flow(flow, each, connection)

    def _enqueue_flow(
        self, flow: NewFlow, members: Iterable[tuple[int, NewJob]], connection: Any
    ) -> EnqueuedFlow:
        way = channel()
        if way is not None:
            if connection is None:
                return way.enqueue_flow(flow, members)
            raise UsageError(
                "connection= does not go with a flow inside a handler: there the "
                "supervisor stores it, not your transaction; nothing was stored. "
                "Commit first, then enqueue it without, with key= to avoid duplicates"
            )
        self._refuse_in_started_process("enqueue")
        if connection is None:
            self.refuse_in_transaction("enqueue")
            return self._lazy.get().enqueue_flow(flow, members, wakes=True)
        connection = self._joined(connection)
        store = self._lazy.joining(connection)
        stored = store.enqueue_flow(flow, members, connection)
        if not unwrap.has_transaction(connection):
            store.wake()
        return stored

    async def enqueue_async(
        self, jobs: Sequence[NewJob], connection: Any = None
    ) -> list[Enqueued]:
        """Store jobs without blocking the event loop; otherwise as `enqueue`."""
        return await self.in_thread(
            connection, lambda stand_in: self.enqueue(jobs, stand_in)
        )

    async def in_thread(self, connection: Any, function: Callable[[Any], T]) -> T:
        """Call what enqueues in a thread, with a stand-in for the connection.

        Raises:
            UsageError: it would wait for the transaction of this thread, of which
                the other one knows nothing.
        """
        from jobpool.store.callers import async_bridge  # noqa: PLC0415 - see there

        if connection is None and channel() is None:
            self.refuse_in_transaction("enqueue")
        return await async_bridge.call_async(connection, function)

    def _joined(self, connection: Any) -> Any:
        """Return what is behind the caller's connection, on which jobs are written."""
        held = getattr(self._local, "held", None)
        if held is not None and held[0] is connection and held[1] != os.getpid():
            raise UsageError(
                "connection: its transaction was begun before this process was forked, "
                "and belongs to the parent; use a connection of this process's own"
            )
        return unwrap.unwrap(connection)

    def _enqueue_beside(
        self, way: Channel, jobs: Sequence[NewJob], connection: Any
    ) -> list[Enqueued]:
        """Store jobs in a handler's transaction."""
        claim = way.claim()
        url = self._lazy.settings.store if claim is None else claim.store_url
        if not url.startswith("postgres"):
            raise UsageError(
                "connection= cannot be used inside a handler with a SQLite store: "
                "there the supervisor stores jobs, not your transaction; nothing was "
                "enqueued. Commit first, then enqueue without it, with key= to avoid "
                "duplicates"
            )
        if claim is None:
            return way.enqueue(jobs)
        return handler_transactions.enqueue(unwrap.unwrap(connection), claim, jobs)

    def read(self, job_id: int, connection: Any = None) -> Job:
        """Return a job as stored; inside a handler, through its supervisor.

        Args:
            job_id: the job.
            connection: the caller's own, on which the job was enqueued: it is read as
                the transaction there sees it.

        Raises:
            JobNotFound: no job has this id.
            UsageError: this is a process that jobpool started, outside any handler; or
                the handler's pool is strict.
            StoreError: the store could not be read.
        """
        way = channel()
        if way is None:
            store, raw = self._seeing("reading a job", connection)
            return existing_job(store.get(job_id, raw), store.url)
        claim = way.claim()
        url = "the store of this handler's supervisor" if not claim else claim.store_url
        if connection is not None and claim is not None:
            raw = unwrap.unwrap(connection)
            return existing_job(handler_transactions.read(raw, claim, job_id), url)
        return existing_job(way.read(job_id) if is_id(job_id) else None, url)

    def payload(self, job_id: int, connection: Any = None) -> bytes:
        """Return a job's arguments as stored; *connection* is as for `read`.

        Raises:
            JobNotFound: no job has this id.
            UsageError: this is a handler; children never open the store.
            StoreError: the store could not be read.
        """
        store, raw = self._seeing("reading a job's arguments", connection)
        payload = store.payload(job_id, raw)
        if payload is None:
            raise JobNotFound(f"the arguments of job {job_id} are gone: it was pruned")
        return payload

    def id_of(self, ref: str, connection: Any = None) -> int:
        """Return the id in a job's ref; *connection* is as for `read`.

        Raises:
            JobNotFound: it is not a ref of this store.
            UsageError: this is a handler; children never open the store.
            StoreError: the store could not be read.
        """
        store, raw = self._seeing("finding a job by its ref", connection)
        job_id = store.id_of(ref, raw)
        if job_id is None:
            why = "it was not made here, or was changed on its way"
            if ref.startswith(FLOW):
                why = "it is a flow's; run.job(step).ref is that of a step's job"
            raise JobNotFound(f"no job has this ref in {store.url}: {why}")
        return job_id

    def store(self, what: str) -> Store:
        """Return the store for reading or for an operator's action.

        Args:
            what: what it is needed for, for the message.

        Raises:
            UsageError: this is a child or another process that jobpool started.
            StoreError: the store cannot be opened.
        """
        if channel() is not None:
            raise UsageError(
                f"{what} does not work inside a handler: children never open the "
                "store, and a job that waits for another holds its slot. Enqueue the "
                "rest of the work as a job of its own instead; jobs.get(id) and "
                "result(timeout=0) check once, and do work"
            )
        self._refuse_in_started_process(what)
        return self._lazy.get()

    def _seeing(self, what: str, connection: Any) -> tuple[Store, Any]:
        """Return the store for reading, and the driver's connection to read on."""
        if connection is None or channel() is not None:
            return self.store(what), None
        self._refuse_in_started_process(what)
        raw = self._joined(connection)
        return self._lazy.joining(raw), raw

    def wake(self) -> None:
        """Wake supervisors, after what was enqueued in a transaction was committed."""
        if channel() is None:
            self._lazy.get().wake()

    @contextmanager
    def transaction(self, connection: Any) -> Iterator[None]:
        """Hold a transaction on the caller's connection; see `JobPool.transaction`."""
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

    def result_max_bytes(self) -> int:
        """Return the most bytes that a result may take.

        Raises:
            ConfigError: the configuration is wrong.
        """
        return self._lazy.settings.result_max_bytes

    def check_pool(self, pool: str) -> None:
        """Refuse a pool that neither the configuration nor any supervisor has.

        Raises:
            UsageError: there is none of this name; nothing was enqueued.
            ConfigError: the configuration is wrong.
            StoreError: the store could not be read.
        """
        way = channel()
        claim = None if way is None else way.claim()
        known = self.pools
        if pool in known or (way is None and RUN_VARIABLE in os.environ):
            return  # A zygote sees neither flags nor the store; its supervisor does.
        known |= {*(claim or self._lazy.settings).pool_names}
        if way is None and pool not in known:
            known |= {
                name for run in self._lazy.get().open_runs() for name in run.pools
            }
        if pool not in known:
            raise UsageError(
                f"pool {pool!r} is in no configuration that is known here, and no "
                f"supervisor runs it: a job would wait for ever. Known are "
                f"{', '.join(sorted(known))}; add [pools.{pool}] to the configuration, "
                "or start a supervisor with it first. Nothing was enqueued"
            )

    @property
    def argument(self) -> str | None:
        """The store's URL as the application names it, if it does."""
        return self._lazy.argument

    def close(self) -> None:
        """Close the store if it is open; the next use opens it again."""
        self._lazy.close()

    def _refuse_in_started_process(self, what: str) -> None:
        if RUN_VARIABLE in os.environ:
            raise UsageError(
                f"{what} was called in a process that jobpool started, outside any "
                "handler (at import, in a hook, or in a program that a handler runs); "
                "every new child would do it again. Do it inside a handler, or under "
                '`if __name__ == "__main__":`'
            )


def _alone(_what: Sequence[NewJob] | NewFlow) -> AbstractContextManager[Told]:
    return _NOTHING


def _in_trace(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Return jobs with the present trace context; those that have one keep it."""
    trace = current_trace()
    if trace is None:
        return jobs
    if isinstance(jobs, UniformJobs):
        return UniformJobs(_in_trace((jobs.pattern,))[0], jobs.payloads)
    return [job if job.trace is not None else replace(job, trace=trace) for job in jobs]


class LazyStore:
    """A store that is found and opened at its first use.

    Args:
        argument: the store's URL that the application names, if any.
    """

    stand_ins: ClassVar[list[Callable[[], Store]]] = []
    """The last returns what all use instead, in a test (`jobpool.testing.Queue`)."""

    def __init__(self, argument: str | None) -> None:
        self._argument = argument
        self._lock = threading.RLock()
        self._settings: ClientSettings | None = None
        self._store: Store | None = None
        self._guest: Store | None = None

    @property
    def argument(self) -> str | None:
        """The URL as the application wrote it."""
        return self._argument

    @property
    def settings(self) -> ClientSettings:
        """The client's settings from the configuration.

        Raises:
            ConfigError: it is wrong.
        """
        if self._settings is None:
            with self._lock:
                if self._settings is None:
                    self._settings = find_settings(self._argument)
        return self._settings

    def get(self) -> Store:
        """Return the open store.

        Raises:
            ConfigError: it is not clear which store is meant.
            StoreError: it cannot be opened.
        """
        if self.stand_ins:
            return self.stand_ins[-1]()
        if self._store is None:
            with self._lock:
                if self._store is None:
                    from jobpool.store.opening import open_store  # noqa: PLC0415 - see above

                    settings = self.settings
                    self._store = open_store(
                        settings.store, admission=settings.admission
                    )
        return self._store

    def joining(self, connection: Any) -> Store:
        """Return the store for jobs that are written on the caller's connection.

        A store that is not open yet is not opened while that connection is in a
        transaction: opening might wait for it, and it waits for this call.

        Raises:
            ConfigError: as for `get`.
            StoreError: as for `get`.
        """
        is_known = self._store is not None or bool(self.stand_ins)
        if is_known or not unwrap.has_transaction(connection):
            return self.get()
        if self._guest is None:
            from jobpool.store.opening import guest_store  # noqa: PLC0415 - see above

            settings = self.settings
            self._guest = guest_store(settings.store, admission=settings.admission)
        return self._guest or self.get()

    def close(self) -> None:
        """Close the store if it is open; the next use finds and opens it again."""
        with self._lock:
            store, self._store = self._store, None
            self._settings = self._guest = None
        if store is not None:
            store.close()


def find_settings(argument: str | None) -> ClientSettings:
    """Return a client's settings: argument, environment, configuration, defaults.

    Args:
        argument: the store's URL that the application names, if any.

    Raises:
        ConfigError: the configuration is wrong, or the URL is not one.
    """
    from pathlib import Path  # noqa: PLC0415 - see above

    from jobpool.core.config.load import (  # noqa: PLC0415 - see above
        client_settings,
        read_sources,
    )

    given: Any = argument
    if given is not None and not (isinstance(given, str) and given.strip()):
        got = "nothing" if argument == "" else f"{argument!r:.40}"
        raise ConfigError(
            f"store: expected a URL such as 'sqlite:///jobpool.db', got {got}"
        )
    return client_settings(
        read_sources(
            {"store": argument},
            env=os.environ,
            directory=str(Path.cwd()),
            read_file=_read_file,
        )
    )


def _read_file(path: str) -> str | None:
    from pathlib import Path  # noqa: PLC0415 - see above

    try:
        return Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"the configuration {path} cannot be read: {exc}") from exc


def existing_job(job: Job | None, url: str) -> Job:
    """Return a job as stored, if there is one.

    Raises:
        JobNotFound: no job has this id.
    """
    if job is None:
        raise JobNotFound(
            f"no job has this id in {url}; it may have been pruned, or is in another "
            "store"
        )
    return job
