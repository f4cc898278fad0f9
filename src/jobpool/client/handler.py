"""Handler: a registered function, which can still be called and also enqueued."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Never,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

import msgspec

from jobpool.client.declare.elsewhere import OF_CALLS, missing
from jobpool.client.declare.options import DEFAULT, Options, read_options
from jobpool.client.gateway import Gateway
from jobpool.client.job import Job
from jobpool.client.payload.arguments import Arguments
from jobpool.client.payload.redact_paths import check_redact
from jobpool.client.payload.results import Results
from jobpool.client.payload.step_value import StepValue
from jobpool.client.payload.strict_json import step_values_in
from jobpool.client.quotas.counted import check_counted
from jobpool.client.quotas.declared import HandlerQuotas
from jobpool.core.application.handler_spec import HandlerSpec, with_codec
from jobpool.core.application.redaction import with_redaction
from jobpool.core.jobs.job import Enqueued, NewJob
from jobpool.core.units import DurationLike, SizeLike
from jobpool.errors import ArgumentsRejected, ConfigError, UsageError

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
"""Covariant: a type checker may infer a narrower type for an async function."""
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)
Q = ParamSpec("Q")
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _TakesFirst(Protocol[A_contra, Q, R_co]):
    """A handler by its first argument and the others, as type checkers see it."""

    def _function_of(
        self, first: A_contra, /, *args: Q.args, **kwargs: Q.kwargs
    ) -> R_co: ...


class Handler(Generic[P, R_co]):
    """A registered function. Made by ``@jobs.job``, not by applications.

    Calling it calls the function in this process; `enqueue` makes the call a job.

    Args:
        function: the user's function.
        spec: what its decorator declared, without the schema.
        gateway: where jobs go.
        payload_max_bytes: most bytes that arguments may take; None: as configured.
        redact: paths of arguments that are hidden wherever jobs are shown.
        quotas: what these have to do with its calls.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        spec: HandlerSpec,
        *,
        gateway: Gateway,
        payload_max_bytes: int | None,
        redact: tuple[str, ...] = (),
        quotas: HandlerQuotas,
    ) -> None:
        functools.update_wrapper(self, function)
        # After update_wrapper, so that they replace the function's attributes.
        self._function = function
        self._spec = spec
        self._gateway = gateway
        gateway.pools.add(spec.pool)
        self._encoding = gateway.encoding
        self._payload_max_bytes = payload_max_bytes
        self.arguments = Arguments(function, spec.kind)
        """Encodes calls as payloads, and decodes these."""
        self.results = Results(function, spec.kind)
        """Encodes results, and decodes these."""
        self.redact = redact
        """Paths of arguments that are hidden wherever jobs are shown."""
        self.quotas = quotas
        """What these have to do with its calls."""
        self.counts = bool(quotas.counted.paths)
        """Whether quotas count its jobs by their arguments."""
        self.name: str = getattr(function, "__qualname__", spec.kind)
        """The function's name within its module."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself; no job is made."""
        return self._function(*args, **kwargs)

    _function_of = __call__

    def __repr__(self) -> str:
        return f"<Handler {self.kind} in pool {self.pool}>"

    def __reduce__(self) -> str:
        # Pickled by its name, as a function is.
        return self.name

    if not TYPE_CHECKING:  # which would take any attribute to be there

        def __getattr__(self, name: str) -> Any:
            return missing(self, name, OF_CALLS)

    @property
    def kind(self) -> str:
        """The handler's stable name."""
        return self._spec.kind

    @property
    def pool(self) -> str:
        """The pool whose children run it."""
        return self._spec.pool

    @property
    def kinds(self) -> frozenset[str]:
        """Its kind, and those that it had before."""
        return frozenset((self._spec.kind, *self._spec.aliases))

    @property
    def spec(self) -> HandlerSpec:
        """The declaration, including the arguments' JSON Schema.

        Raises:
            ConfigError: the annotations cannot be resolved or read from JSON, or what
                is to be redacted or counted by is not there.
        """
        check_redact(self.redact, self.arguments.schema, self.kind)
        check_counted(self.quotas.counted.paths, self.arguments.schema, self.kind)
        schema = with_codec(self.arguments.schema, self._encoding.codec)
        return msgspec.structs.replace(
            self._spec, schema=with_redaction(schema, self.redact, self._spec.aliases)
        )

    @overload
    def enqueue(
        self: Handler[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[T]: ...
    @overload
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]: ...
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any]:
        """Enqueue this call as a job; it is durable once this returns.

        Inside a handler the supervisor stores it, and this returns after the commit.

        Returns:
            The job, or the existing one with the same key or unique text.

        Raises:
            ArgumentsRejected: the arguments do not fit, are not JSON or are too large.
            KeyConflict: a job with other arguments has the key.
            QueueFull: too many jobs are waiting.
            UsageError: it cannot work here; the message says what to do instead.
            StoreError: the store cannot be used. In all cases nothing was stored.
        """
        return self._enqueue(DEFAULT, args, kwargs)

    @overload
    async def enqueue_async(
        self: Handler[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[T]: ...
    @overload
    async def enqueue_async(
        self, /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R_co]: ...
    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any]:
        """Enqueue this call without blocking the event loop; as `enqueue`."""
        return await self._enqueue_async(DEFAULT, args, kwargs)

    def options(
        self,
        *,
        run_in: DurationLike | None = None,
        run_at: datetime | float | None = None,
        expires_in: DurationLike | None = None,
        priority: int | None = None,
        key: str | None = None,
        unique: str | None = None,
        unique_until: Literal["start", "finish"] | None = None,
        on_conflict: Literal["keep", "replace", "postpone"] | None = None,
        postpone_max: DurationLike | None = None,
        tenant: str | None = None,
        max_attempts: int | None = None,
        timeout: DurationLike | None = None,
        memory: SizeLike | None = None,
        pool: str | None = None,
        trace: str | None = None,
        connection: Any = None,
    ) -> BoundHandler[P, R_co]:
        """Set the options of one job, to be followed by `enqueue` or `call`.

        Args:
            run_in: earliest start, as a duration from now.
            run_at: earliest start: an aware datetime or Unix seconds.
            expires_in: canceled if no attempt has begun this long from now.
            priority: higher is more important; -32768 to 32767. None: 0, or as the
                flow says that it is added to.
            key: idempotency key: the same job is returned until it is pruned.
            unique: at most one unfinished job of the kind has this text.
            unique_until: ``"start"``: the text is free as soon as the job is leased;
                ``"finish"``, which is the default: once it has ended.
            on_conflict: what becomes of a job that has the text and has not begun:
                it is kept as it is (``"keep"``, the default), gets these arguments and
                options (``"replace"``), or also this ``run_in``, counted from now
                (``"postpone"``). Beside one that has begun, the last two leave one
                job that waits for its end.
            postpone_max: how long after it was created a job is postponed at most;
                a minute if it is not given.
            tenant: on whose behalf the job runs; stored with it.
            max_attempts: instead of the handler's.
            timeout: instead of the handler's, up to the pool's maximum.
            memory: instead of the handler's, up to the pool's maximum.
            pool: instead of the handler's; one of those that the configuration names,
                that a handler of this application is in, or that a supervisor runs.
            trace: the trace that the job is part of: W3C's ``traceparent``, and after a
                space ``tracestate``. None: that of the current OpenTelemetry span, or
                of the attempt that enqueues it.
            connection: the caller's own connection to the same database; the job
                belongs to its transaction, and commits or vanishes with it. From
                sqlite3, psycopg, psycopg2, SQLAlchemy or Django; an asynchronous one
                for ``enqueue_async``.

        Raises:
            UsageError: a value is out of range, or two contradict each other.
                Of a pool that nobody has it is raised by `enqueue` and `call`.
        """
        return BoundHandler(
            self,
            read_options(
                run_in=run_in,
                run_at=run_at,
                expires_in=expires_in,
                priority=priority,
                key=key,
                unique=unique,
                unique_until=unique_until,
                on_conflict=on_conflict,
                postpone_max=postpone_max,
                tenant=tenant,
                max_attempts=max_attempts,
                timeout=timeout,
                memory=memory,
                pool=pool,
                trace=trace,
                connection=connection,
            ),
        )

    @overload
    def call(
        self: Handler[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Call[T]: ...
    @overload
    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]: ...
    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[Any]:
        """Return this call, checked and not yet enqueued, for `JobPool.enqueue_many`.

        Raises:
            ArgumentsRejected: as for `enqueue`.
        """
        return self._packed(DEFAULT, args, kwargs)

    @overload
    def rest(
        self: _TakesFirst[A, Q, Coroutine[Any, Any, T]],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Rest[A, T]: ...
    @overload
    def rest(
        self: _TakesFirst[A, Q, R], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Rest[A, R]: ...
    def rest(self, /, *args: Any, **kwargs: Any) -> Rest[Any, Any]:
        """Return this call without its first argument, for ``jobs.chain(...).then``.

        That is the result of what is before it in the chain. The others are checked
        when it is added.
        """
        handler: Handler[..., Any] = self
        return Rest(handler, DEFAULT, args, kwargs)

    @overload
    def decode_result(
        self: Handler[P, Coroutine[Any, Any, T]], encoded: bytes | None, /
    ) -> T: ...
    @overload
    def decode_result(self, encoded: bytes | None, /) -> R_co: ...
    def decode_result(self, encoded: bytes | None, /) -> Any:
        """Return a stored result as this has returned it; as `Results.decode`."""
        return self.results.decode(encoded)

    def check_has_defaults(self) -> None:
        """Refuse a handler that cannot be called without arguments.

        Raises:
            ConfigError: it cannot; the message names an argument.
        """
        for parameter in inspect.signature(self._function).parameters.values():
            if parameter.default is parameter.empty and parameter.kind not in _REST:
                raise ConfigError(
                    f"{self.kind} needs the argument {parameter.name!r}, which a "
                    "schedule by @jobs.cron does not give it; give it a default, or "
                    "write jobs.schedule(name, handler.call(...), cron=...)"
                )

    def new_job(
        self,
        options: Options,
        payload: bytes = b"",
        values: Mapping[str, str] | None = None,
    ) -> NewJob:
        """Return a job of this kind, not stored.

        Args:
            options: its options.
            payload: its arguments, encoded already.
            values: what quotas count it by; None: nothing.
        """
        return options.new_job(self._spec, payload, self._encoding.name, values)

    def encode_named(self, arguments: Any) -> bytes:
        """Return the payload for arguments by name, checked, as it is stored.

        Raises:
            ArgumentsRejected: as for `enqueue`.
        """
        most = self._payload_max()
        payload = self.arguments.encode_named(arguments, most)
        return self._encoding.payload(payload, self.kind, most)

    def values(self, arguments: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Return what quotas count a job by; None: nothing.

        Args:
            arguments: by name, and good to be encoded.

        Raises:
            ArgumentsRejected: one is of a type that cannot be counted by.
        """
        return self.quotas.counted.values(arguments)

    def decode(self, job: NewJob) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments of a job, as its child does.

        Raises:
            CodecMismatch: it needs another codec or key.
            ArgumentsMisfit: they do not fit the handler.
        """
        payload = self._encoding.decoded(job.payload, job.codec)
        return self.arguments.decode(payload)

    def running(self, job: NewJob) -> AbstractContextManager[None]:
        """Let a job's call be the running one in the block, as far as quotas see it."""
        payload = self._encoding.decoded(job.payload, job.codec)
        return self.quotas.running(payload)

    def encode_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Return the payload for a call; as `encode_named`."""
        most = self._payload_max()
        payload = self.arguments.encode_call(args, kwargs, most)
        if self._encoding.codec is None:
            return payload
        return self._encoding.payload(payload, self.kind, most)

    def _enqueue(
        self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Job[Any]:
        jobs = [self._called(options, args, kwargs)]
        (stored,) = self._gateway.enqueue(jobs, options.connection)
        return self._job(stored)

    async def _enqueue_async(
        self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Job[Any]:
        jobs = [self._called(options, args, kwargs)]
        (stored,) = await self._gateway.enqueue_async(jobs, options.connection)
        return self._job(stored)

    def _called(
        self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> NewJob:
        if options.pool is not None:
            self.check_pool(options.pool)
        if not self.counts:
            return self.new_job(options, self.encode_call(args, kwargs))
        given = self.arguments.by_name(args, kwargs)
        return self.new_job(options, self.encode_named(given), self.values(given))

    def _packed(
        self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call[Any]:
        """Return a call, also one with values of a flow's steps among its arguments."""
        try:
            return self._call(options, self._called(options, args, kwargs))
        except ArgumentsRejected:
            given = self.arguments.by_name(args, kwargs)
            held = step_values_in(given)
            if not held:
                raise
        if options.pool is not None:
            self.check_pool(options.pool)
        for path, quota in self.quotas.counted.paths.items():
            if path.partition(".")[0] in held:
                raise ArgumentsRejected(
                    f"arguments of {self.kind} are refused: quota {quota!r} counts by "
                    f"args.{path}, which is not there when the job is stored; pass it "
                    "as it is, or let the quota count by something else"
                )
        most = self._payload_max()
        payload = self.arguments.encode_waiting(given, held, most)
        payload = self._encoding.payload(payload, self.kind, most)
        values = self.values(given) if self.counts else None
        needs = tuple(one for some in held.values() for one in some)
        return self._call(options, self.new_job(options, payload, values), needs)

    def _call(
        self, options: Options, job: NewJob, needs: tuple[StepValue, ...] = ()
    ) -> Call[Any]:
        has_priority = options.priority is not None
        return Call(job, options.connection, needs=needs, has_priority=has_priority)

    def check_pool(self, pool: str) -> None:
        """Refuse a pool that nobody has.

        Raises:
            UsageError: its job would wait for ever; nothing was enqueued.
        """
        if pool != self.pool:
            self._gateway.check_pool(pool)

    def _payload_max(self) -> int:
        own = self._payload_max_bytes
        return self._gateway.payload_max_bytes() if own is None else own

    def _job(self, stored: Enqueued) -> Job[Any]:
        return Job(
            stored.id,
            self.kind,
            created=stored.created,
            replaced=stored.replaced,
            postponed=stored.postponed,
            gateway=self._gateway,
            decode=self.results.decode,
        )


class Call(Generic[R_co]):
    """A handler with its arguments, not yet enqueued. Made by ``handler.call``.

    Args:
        job: the job to store.
        connection: the caller's own connection to write it on, if any.
        needs: the values of a flow's steps among its arguments.
        has_priority: its options say a priority, which goes before its flow's.
    """

    __slots__ = ("connection", "has_priority", "needs", "packed")

    def __init__(
        self,
        job: NewJob,
        connection: Any,
        *,
        needs: tuple[StepValue, ...] = (),
        has_priority: bool = False,
    ) -> None:
        self.packed = job
        self.connection = connection
        self.needs = needs
        self.has_priority = has_priority

    def __repr__(self) -> str:
        return f"<Call of {self.packed.kind}>"

    @property
    def job(self) -> NewJob:
        """The job to store by itself, in no flow.

        Raises:
            UsageError: its arguments hold the value of a flow's step.
        """
        if self.needs:
            raise UsageError(
                f"this call of {self.packed.kind} needs the value of a flow's step, so "
                "it can only be added to that flow; nothing was stored"
            )
        return self.packed


class BoundHandler(Generic[P, R_co]):
    """A handler with the options of one job, as `Handler.options` returns it.

    Args:
        handler: the handler.
        options: the options, read.
    """

    __slots__ = ("chosen", "handler")

    def __init__(self, handler: Handler[P, R_co], options: Options) -> None:
        self.handler = handler
        self.chosen = options

    def _function_of(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself; here for `_TakesFirst` alone."""
        return self.handler(*args, **kwargs)

    def options(self, **_more: Never) -> NoReturn:
        """Refuse further options."""
        raise UsageError(
            "options() was called already: give all options of a job in one call, as "
            "in handler.options(priority=5, key=...)"
        )

    @overload
    def enqueue(
        self: BoundHandler[P, Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Job[T]: ...
    @overload
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]: ...
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any]:
        """Enqueue this call with these options; as `Handler.enqueue`."""
        return self.handler._enqueue(self.chosen, args, kwargs)  # noqa: SLF001 - its other half

    @overload
    async def enqueue_async(
        self: BoundHandler[P, Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Job[T]: ...
    @overload
    async def enqueue_async(
        self, /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R_co]: ...
    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any]:
        """Enqueue this call without blocking the event loop; as `Handler.enqueue`.

        An asynchronous ``connection`` needs it: psycopg's AsyncConnection,
        aiosqlite's, or SQLAlchemy's AsyncConnection or AsyncSession over these.
        """
        handler = self.handler
        return await handler._enqueue_async(self.chosen, args, kwargs)  # noqa: SLF001 - its other half

    @overload
    def call(
        self: BoundHandler[P, Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Call[T]: ...
    @overload
    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]: ...
    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[Any]:
        """Return this call with these options, not yet enqueued; as `Handler.call`."""
        return self.handler._packed(self.chosen, args, kwargs)  # noqa: SLF001 - its other half

    @overload
    def rest(
        self: _TakesFirst[A, Q, Coroutine[Any, Any, T]],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Rest[A, T]: ...
    @overload
    def rest(
        self: _TakesFirst[A, Q, R], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Rest[A, R]: ...
    def rest(self, /, *args: Any, **kwargs: Any) -> Rest[Any, Any]:
        """Return this call without its first argument; as `Handler.rest`."""
        bound: BoundHandler[..., Any] = self
        return Rest(bound.handler, bound.chosen, args, kwargs)


class Rest(Generic[A_contra, R_co]):
    """A call that lacks its first argument. Made by ``handler.rest``.

    Args:
        handler: the handler.
        options: those of its job.
        args: the arguments after the first.
        kwargs: those by name.
    """

    __slots__ = ("_args", "_handler", "_kwargs", "_options")

    def __init__(
        self,
        handler: Handler[..., Any],
        options: Options,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._handler = handler
        self._options = options
        self._args = args
        self._kwargs = kwargs

    def __repr__(self) -> str:
        return f"<Rest of a call of {self._handler.kind}>"

    def call(self, first: A_contra, /) -> Call[R_co]:
        """Return the call with its first argument; errors as for `Handler.call`."""
        handler, args = self._handler, (first, *self._args)
        return handler._packed(self._options, args, self._kwargs)  # noqa: SLF001 - its other half
