"""JobPool: an application's handlers, and access to their jobs.

`enqueue_many` streams: each batch is checked as a whole, then stored as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from jobpool.client.declare.elsewhere import OF_POOLS, missing
from jobpool.client.declare.options import DEFAULT, Options
from jobpool.client.encoding import Encoding
from jobpool.client.gateway import Gateway
from jobpool.client.handler import BoundHandler, Call, Handler
from jobpool.client.invoke.completion import ConnectionCompleter
from jobpool.client.job import (
    HasKind,
    Job,
    JobFilter,
    act,
    filter_of,
    in_thread,
    operate,
    replace,
)
from jobpool.client.payload.results import encode_result
from jobpool.client.quota_operations import QuotaOperations, TenantOperations
from jobpool.client.registration import Registration
from jobpool.client.schedules.schedules import Schedules
from jobpool.core.application.codec import Codec
from jobpool.core.application.current import set_completer
from jobpool.core.config.options import TOP
from jobpool.core.jobs.job import NewJob
from jobpool.core.jobs.uniform_batch import UniformJobs
from jobpool.core.units import DurationLike, SizeLike, duration_s, size_bytes
from jobpool.errors import ArgumentsRejected, ConfigError, UsageError

if TYPE_CHECKING:
    from jobpool.client.flows.chain import Chain
    from jobpool.client.flows.flow import Flow
    from jobpool.client.flows.run import FlowRun
    from jobpool.core.jobs.flow import EnqueuedFlow

BATCH_JOBS_MAX = 1000
BATCH_BYTES_MAX = 4 * 2**20
"""Also the end of a batch: memory stays bounded, and it fits one message."""

_LISTED_MAX = 10_000
R = TypeVar("R")
_Batch = tuple[Sequence[NewJob], Any]
"""Jobs, and the caller's connection to write them on."""
_RELEASED = ("quarantined",)


class JobPool(Registration):
    """An application's handlers, and access to their jobs.

    Nothing is opened until it is needed, so that one can be made at import. It may be
    used by several threads, and after a fork.

    Args:
        store: URL of the store, such as ``sqlite:///jobpool.db``. None: from
            ``JOBPOOL_STORE`` or the configuration file, as for the supervisor.
        payload_max: most bytes of one job's arguments as JSON, encoded if there is a
            codec. None: as configured, 1 MiB by default.
        codec: what arguments, results, checkpoints, progress, errors and output pass
            through before they are stored, such as
            `jobpool.integrations.fernet.FernetCodec`. None: they are stored in plain.

    Raises:
        ConfigError: payload_max is not a size, or over 8 MiB; or codec is no codec.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        payload_max: SizeLike | None = None,
        codec: Codec | None = None,
    ) -> None:
        super().__init__(
            Gateway(store, Encoding(codec)),
            None
            if payload_max is None
            else TOP["payload_max"].read(payload_max, "payload_max"),
        )
        self.schedules = Schedules(self._gateway, self.decoder_of)
        """All schedules of the store, declared and put."""
        self.quotas = QuotaOperations(self._gateway)
        """The quotas of the store, as they are in force."""
        self.tenants = TenantOperations(self._gateway)
        """What tenants may use."""
        set_completer(ConnectionCompleter())

    if not TYPE_CHECKING:  # which would take any attribute to be there

        def __getattr__(self, name: str) -> Any:
            return missing(self, name, OF_POOLS)

    @overload
    def enqueue_many(self, calls: Iterable[Call[Any]], /) -> int: ...
    @overload
    def enqueue_many(
        self,
        handler: Handler[..., Any] | BoundHandler[..., Any],
        items: Iterable[Mapping[str, Any]],
    ) -> int: ...
    def enqueue_many(
        self,
        handler: Any,
        items: Iterable[Mapping[str, Any]] | None = None,
    ) -> int:
        """Enqueue a job for each call, or for each dict of arguments by name, in order.

        ``jobs.enqueue_many(load.call(n) for n in range(10))`` is checked by type
        checkers, and each call may have its own options, such as a key.
        ``jobs.enqueue_many(load, dicts)`` is for arguments that are dicts already.

        They are streamed: each batch of up to 1,000 jobs or 4 MiB is checked as a
        whole and then stored in one transaction, so that memory stays bounded.

        Args:
            handler: calls; or a handler, or ``handler.options(...)`` for all items,
                without key and unique.
            items: arguments; like calls, they may be a generator of any length.

        Returns:
            How many jobs were stored, without those that existed already because of a
            call's key or unique text.

        Raises:
            ArgumentsRejected: an item does not fit; names its index, and how many
                jobs of the items before it were stored. Nothing after them was.
            UsageError: it is not a handler or a call, or it cannot work here.
            StoreError: the store cannot be used; a note says how many were stored.
        """
        return _enqueue_many(self._gateway, handler, items)

    def transaction(self, connection: Any) -> AbstractContextManager[None]:
        """Run the block in a transaction on the caller's own connection.

        Commits at the end of the block and wakes the supervisors; rolls back if the
        block raises. In it, ``handler.options(connection=connection)`` enqueues jobs
        that commit or vanish with the caller's own rows. On SQLite it first takes the
        writers' lock, and so waits its turn.

        Args:
            connection: the caller's own connection to the store's database.

        Raises:
            UsageError: the connection is closed, is to another database, or is in a
                transaction already; or this thread is in such a block already.
            StoreUnavailable: the lock could not be taken, or the commit failed.
        """
        return self._gateway.transaction(connection)

    def flow(
        self,
        name: str,
        /,
        *,
        key: str | None = None,
        tenant: str | None = None,
        priority: int | None = None,
        failure: Literal["fail", "continue"] | None = None,
    ) -> Flow:
        """Begin a flow: jobs that wait for each other; see `Flow.enqueue`.

        Args:
            name: what it is, such as ``"nightly-report"``.
            key: idempotency key: the flow of this name that has it is returned until
                it is pruned.
            tenant: on whose behalf its jobs run, if their own options do not say.
            priority: of its jobs whose own options do not say one; None: 0.
            failure: what becomes of the flow if a step has failed and none that is
                after it waits for that: ``"fail"``: what has not begun is canceled;
                ``"continue"``: other branches go on. None: as the flow that it is
                added to, or ``"fail"``.

        Raises:
            UsageError: a value is wrong.
        """
        from jobpool.client.flows.flow import Flow  # noqa: PLC0415 - few need it

        return Flow(
            self._gateway,
            self._run_of,
            name,
            key=key,
            tenant=tenant,
            priority=priority,
            failure=failure,
        )

    def chain(
        self,
        call: Call[R],
        /,
        *,
        name: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        priority: int | None = None,
    ) -> Chain[R]:
        """Begin a flow in which each job gets the result of the one before it.

        ``jobs.chain(fetch.call(url)).then(resize.rest(width=64)).enqueue()``

        Args:
            call: the first one.
            name: as for `flow`; by default the kind of the first call.
            key: as for `flow`.
            tenant: as for `flow`.
            priority: as for `flow`.

        Raises:
            UsageError: a value is wrong.
        """
        from jobpool.client.flows.chain import Chain  # noqa: PLC0415 - few need it

        if not isinstance(call, Call):
            raise UsageError(
                f"chain: expected a call, such as handler.call(...), got "
                f"{type(call).__name__}; nothing was stored"
            )
        flow = self.flow(
            name or call.job.kind, key=key, tenant=tenant, priority=priority
        )
        return Chain(flow, flow.add(call))

    def get_flow(self, ref: int | str, /) -> FlowRun[Any]:
        """Return a handle of an existing flow.

        Args:
            ref: its `FlowRun.ref`, or its id.

        Raises:
            FlowNotFound: there is none; it may have been pruned. Or it is not a ref of
                this store.
            UsageError: not an id, or this is a handler.
        """
        from jobpool.client.flows.run import found_flow  # noqa: PLC0415 - few need it

        return self._run_of(found_flow(self._gateway, ref))

    def approve(
        self, job_id: int | str, result: Any = None, *, note: str | None = None
    ) -> bool:
        """End a step that waits for this; see `Flow.wait_for`.

        Args:
            job_id: the step's one job: its id or its `Job.ref`.
            result: JSON value, which steps after it may get.
            note: why, at most 1,000 characters; kept in the audit trail, without the
                result.

        Returns:
            False if it has ended already.

        Raises:
            JobNotFound: no job has this id or ref.
            UsageError: it does not wait for this, or not yet; or this is a handler.
            TypeError: the result cannot be encoded as JSON.
            ResultTooLarge: it is over ``result_max``. In all cases nothing was changed.
        """
        from jobpool.operations.flows import Approve  # noqa: PLC0415 - see `operate`

        if isinstance(job_id, str):
            job_id = self._gateway.id_of(job_id)
        waiting = self._gateway.read(_checked_id(job_id))
        most, encoding = self._gateway.result_max_bytes(), self._gateway.encoding
        packed = encoding.result(encode_result(result, waiting.kind, most), most)
        action = Approve(job=waiting.id, result=packed, codec=encoding.name, note=note)
        return operate(self._gateway, action)

    def _run_of(self, stored: EnqueuedFlow) -> FlowRun[Any]:
        from jobpool.client.flows.run import FlowRun  # noqa: PLC0415 - few need it

        return FlowRun(
            stored.id,
            stored.ref,
            created=stored.created,
            gateway=self._gateway,
            decoder_of=self.decoder_of,
        )

    def get(self, job_id: int | str) -> Job[Any]:
        """Return a handle of an existing job; inside a handler as well.

        Args:
            job_id: its id or, outside a handler, its `Job.ref`.

        Raises:
            JobNotFound: no job has this id; it may have been pruned. Or it is not a
                ref of this store.
            UsageError: not an id, or this is a handler of a strict pool.
        """
        if isinstance(job_id, str):
            job_id = self._gateway.id_of(job_id)
        job = self._gateway.read(_checked_id(job_id))
        return Job(
            job.id,
            job.kind,
            created=False,
            gateway=self._gateway,
            decode=self.decoder_of(job.kind),
        )

    async def get_async(self, job_id: int | str) -> Job[Any]:
        """Return a handle without blocking the event loop; as `get`."""
        return await in_thread(lambda: self.get(job_id))

    def list(
        self,
        kind: HasKind | str | None = None,
        /,
        *,
        limit: int = 100,
        before: int | None = None,
        **which: Unpack[JobFilter],
    ) -> Sequence[Job[Any]]:
        """Return handles of jobs, the newest first.

        ``jobs.list(mail, state="dead")``; the next page is
        ``jobs.list(mail, state="dead", before=page[-1].id)``.

        Args:
            kind: a handler, or the name of a kind; None: any.
            limit: most jobs to return, up to 10,000.
            before: only jobs with lower ids.
            **which: see `JobFilter`.

        Raises:
            UsageError: a condition does not exist or has a wrong value, or this is a
                handler; children never open the store.
            StoreError: the store could not be read.
        """
        if limit not in range(1, _LISTED_MAX + 1):
            raise UsageError(f"limit: expected 1 to {_LISTED_MAX:,}, got {limit!r:.40}")
        last = None if before is None else _checked_id(before)
        store = self._gateway.store("listing jobs")
        return [
            Job(
                job.id,
                job.kind,
                created=False,
                gateway=self._gateway,
                decode=self.decoder_of(job.kind),
            )
            for job in store.find(filter_of(kind, which), limit, last)
        ]

    async def list_async(
        self,
        kind: HasKind | str | None = None,
        /,
        *,
        limit: int = 100,
        before: int | None = None,
        **which: Unpack[JobFilter],
    ) -> Sequence[Job[Any]]:
        """Return handles of jobs without blocking the event loop; as `list`."""
        return await in_thread(
            lambda: self.list(kind, limit=limit, before=before, **which)
        )

    def count(
        self, kind: HasKind | str | None = None, /, **which: Unpack[JobFilter]
    ) -> int:
        """Count jobs, exactly: in a large store that may take long.

        Args:
            kind: as for `list`.
            **which: likewise.

        Raises:
            UsageError: as for `list`.
            StoreError: the store could not be read.
        """
        return self._gateway.store("counting jobs").count(filter_of(kind, which))

    async def count_async(
        self, kind: HasKind | str | None = None, /, **which: Unpack[JobFilter]
    ) -> int:
        """Count jobs without blocking the event loop; as `count`."""
        return await in_thread(lambda: self.count(kind, **which))

    def wait(self, job_id: int, timeout: DurationLike | None = None) -> Job[Any]:
        """Wait until a job has finished, however it ended, and return its handle.

        Raises:
            WaitTimeout: it has not finished in time; it is unaffected.
            JobNotFound: no job has this id.
        """
        job = self.get(job_id)
        job.wait(timeout)
        return job

    def cancel(self, job_id: int, *, note: str | None = None) -> bool:
        """Cancel a job; as `Job.cancel`."""
        return act(self._gateway, "cancel", _checked_id(job_id), note)

    def retry(self, job_id: int, *, note: str | None = None) -> bool:
        """Make a dead, canceled or waiting job due now; resets its counters.

        Its history is kept.

        Args:
            job_id: the job.
            note: why, at most 1,000 characters; kept in the audit trail.

        Returns:
            False if it is in another state, or another job has its unique text.

        Raises:
            JobNotFound: no job has this id.
        """
        return act(self._gateway, "retry", _checked_id(job_id), note)

    def release(
        self, job_id: int, *, memory: SizeLike | None = None, note: str | None = None
    ) -> bool:
        """Let a quarantined job run again; as `retry`.

        Args:
            job_id: the job.
            memory: its own memory limit from now on, such as ``"2GiB"``: more than the
                one that it has, and no more than its pool allows; else it stays as it
                was. None: its limit stays.
            note: why, at most 1,000 characters; kept in the audit trail.

        Returns:
            Whether it runs again.

        Raises:
            JobNotFound: no job has this id.
            UsageError: *memory* is no size, or the note is too long; nothing was
                changed.
        """
        return act(
            self._gateway,
            "release",
            _checked_id(job_id),
            note,
            _RELEASED,
            memory_bytes=_checked_size(memory),
        )

    def replay(self, job_id: int, call: Call[R], *, note: str | None = None) -> Job[R]:
        """Replace a job that has ended by a new one: `jobs.replay(17, load.call(7))`.

        The new job has the key, unique text, tenant, priority and limits of the old
        one, which stays as it was and is not retried any more.

        Args:
            job_id: the old job.
            call: the handler to run, the same or another one, with its arguments;
                without options.
            note: why, at most 1,000 characters; kept in the audit trail, with the paths
                of the arguments that have changed.

        Returns:
            The new job.

        Raises:
            JobNotFound: no job has this id.
            UsageError: it has not ended, or was replaced already; nothing would change;
                another job has its key or unique text; or it cannot be done here.
                Nothing was changed.
        """
        if not isinstance(call, Call):
            raise UsageError(
                f"replay: expected a call, such as handler.call(...), got "
                f"{type(call).__name__}; nothing was replayed"
            )
        job, handler = call.job, self._by_name.get(call.job.kind)
        if (
            handler is None
            or job != handler.new_job(DEFAULT, job.payload, job.quota_values)
            or call.connection is not None
        ):
            raise UsageError(
                f"replay: expected a call of a handler of this JobPool without options "
                f"of its own, got one of {job.kind} that differs: the new job has the "
                "options of the old one. Nothing was replayed"
            )
        schema = handler.spec.schema
        new_id = replace(self._gateway, _checked_id(job_id), job, schema, note)
        return Job(
            new_id,
            job.kind,
            created=True,
            gateway=self._gateway,
            decode=self.decoder_of(job.kind),
        )

    def pause(
        self,
        *,
        pool: str | None = None,
        kind: str | None = None,
        tenant: str | None = None,
        quota: str | None = None,
        duration: DurationLike | None = None,
        note: str | None = None,
    ) -> bool:
        """Start no more jobs of what is named; running ones go on.

        Args:
            pool: the pool.
            kind: or the kind.
            tenant: or the tenant, whatever its jobs' kinds.
            quota: or the quota: of all kinds that need it.
            duration: ``"10m"``, seconds or a timedelta, after which it ends by itself;
                None: it lasts until `resume`.
            note: why, at most 1,000 characters; shown by ``jobpool status``, and kept
                in the audit trail.

        Returns:
            False if it was paused already, with the same end.

        Raises:
            UsageError: not just one of them is named, or no duration; nothing was
                paused.
            FeatureHeldBack: a tenant or a quota, and older supervisors run; likewise.
        """
        from jobpool.operations.queue import Pause  # noqa: PLC0415 - see `operate`

        try:
            for_s = None if duration is None else duration_s(duration, "duration")
        except ConfigError as exc:
            raise UsageError(f"{exc}; nothing was paused") from None
        action = Pause(
            pool=pool, kind=kind, tenant=tenant, quota=quota, for_s=for_s, note=note
        )
        return operate(self._gateway, action)

    def resume(
        self,
        *,
        pool: str | None = None,
        kind: str | None = None,
        tenant: str | None = None,
        quota: str | None = None,
        note: str | None = None,
    ) -> bool:
        """Start jobs again of what is paused, or of a crashing kind.

        Returns:
            False if it was not paused.

        Raises:
            UsageError: not just one of them is named; nothing was changed.
        """
        from jobpool.operations.queue import Resume  # noqa: PLC0415 - see `operate`

        action = Resume(pool=pool, kind=kind, tenant=tenant, quota=quota, note=note)
        return operate(self._gateway, action)

    def close(self) -> None:
        """Close the store if it is open; the next use opens it again."""
        self._gateway.close()


def __getattr__(name: str) -> Any:
    """Make the application of a supervisor that runs configured commands alone."""
    if name == "commands_only":
        return JobPool()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _checked_size(memory: SizeLike | None) -> int | None:
    try:
        return None if memory is None else size_bytes(memory, "memory")
    except ConfigError as exc:
        raise UsageError(f"{exc}; nothing was changed") from None


def _checked_id(job_id: int) -> int:
    if isinstance(job_id, bool) or not isinstance(job_id, int):
        raise UsageError(
            f"job id: expected a whole number, such as job.id, got "
            f"{type(job_id).__name__}"
        )
    return job_id


def _enqueue_many(
    gateway: Gateway, target: Any, items: Iterable[Mapping[str, Any]] | None
) -> int:
    """Store a job for each item or call; see `JobPool.enqueue_many`."""
    batches = _of_calls(target) if items is None else _of_items(target, items)
    stored = 0
    try:
        for batch, connection in batches:
            answers = gateway.enqueue(batch, connection)
            stored += sum(answer.created for answer in answers)
    except ArgumentsRejected as exc:
        raise ArgumentsRejected(
            f"{exc}; {stored} jobs of the items before it were stored"
        ) from None
    except Exception as exc:
        exc.add_note(f"enqueue_many: {stored} jobs had been stored before this")
        raise
    return stored


def _of_items(target: Any, items: Iterable[Mapping[str, Any]]) -> Iterator[_Batch]:
    handler, options = _one_for_all(target)
    if options.pool is not None:
        handler.check_pool(options.pool)
    payloads: list[bytes] = []
    values: list[Mapping[str, str] | None] = []
    size_bytes = 0
    for index, item in enumerate(_each(items, "dicts of arguments by name")):
        try:
            payload = handler.encode_named(item)
            if handler.counts:
                values.append(handler.values(item))
        except ArgumentsRejected as exc:
            raise ArgumentsRejected(f"item {index} (the first is 0): {exc}") from None
        payloads.append(payload)
        size_bytes += len(payload)
        if _is_full(payloads, size_bytes):
            yield _jobs_of(handler, options, payloads, values), options.connection
            payloads, values, size_bytes = [], [], 0
    if payloads:
        yield _jobs_of(handler, options, payloads, values), options.connection


def _jobs_of(
    handler: Handler[..., Any],
    options: Options,
    payloads: Sequence[bytes],
    values: Sequence[Mapping[str, str] | None],
) -> Sequence[NewJob]:
    if not values:
        return UniformJobs(handler.new_job(options), payloads)
    return [
        handler.new_job(options, *one) for one in zip(payloads, values, strict=True)
    ]


def _of_calls(calls: Iterable[Call[Any]]) -> Iterator[_Batch]:
    if isinstance(calls, (Handler, BoundHandler)):
        raise UsageError(
            "enqueue_many: a handler without items; pass dicts of arguments after it, "
            "or calls instead: enqueue_many(handler.call(...) for ...)"
        )
    jobs: list[NewJob] = []
    size_bytes = 0
    connection: Any = None
    for index, call in enumerate(_each(calls, "calls, such as handler.call(...)")):
        if not isinstance(call, Call):
            raise UsageError(
                f"enqueue_many: expected calls, such as handler.call(...), got "
                f"{type(call).__name__} as item {index} (the first is 0)"
            )
        if jobs and (call.connection is not connection or _is_full(jobs, size_bytes)):
            yield jobs, connection
            jobs, size_bytes = [], 0
        connection = call.connection
        jobs.append(call.job)
        size_bytes += len(call.job.payload)
    if jobs:
        yield jobs, connection


def _one_for_all(target: Any) -> tuple[Handler[..., Any], Options]:
    handler, options = (
        (target.handler, target.chosen)
        if isinstance(target, BoundHandler)
        else (target, DEFAULT)
    )
    if not isinstance(handler, Handler):
        raise UsageError(
            f"enqueue_many: expected a handler, got {type(target).__name__}; decorate "
            "the function with @jobs.job(...) first"
        )
    if options.key is not None or options.unique is not None:
        raise UsageError(
            "enqueue_many: key= and unique= would make all items one job; give each "
            "item its own: enqueue_many(handler.options(key=...).call(...) for ...)"
        )
    return handler, options


def _each(items: Any, expected: str) -> Iterator[Any]:
    if not isinstance(items, Iterable) or isinstance(items, (str, bytes, Mapping)):
        raise UsageError(
            f"enqueue_many: expected a list or generator of {expected}, got "
            f"{type(items).__name__}"
        )
    return iter(items)


def _is_full(batch: Sequence[object], size_bytes: int) -> bool:
    return len(batch) >= BATCH_JOBS_MAX or size_bytes >= BATCH_BYTES_MAX
