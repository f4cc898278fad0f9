"""Registration: an application's handlers and hooks, declared and run."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Never,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
)

import msgspec

from jobpool.client.declare.commands.command import RESULT, command_function
from jobpool.client.declare.declaration import (
    check_function,
    checked_kind,
    kind_of,
    read_limits,
    read_policy,
    refuse_unknown,
)
from jobpool.client.declare.retry import RetryRules
from jobpool.client.gateway import Gateway, find_settings
from jobpool.client.handler import Call, Handler
from jobpool.client.invoke.around import (
    Around,
    AttemptHooks,
    Enqueuing,
    Failed,
    Returned,
    Succeeded,
    teller,
)
from jobpool.client.invoke.hooks import DeadJob, Hooks
from jobpool.client.invoke.invocation import call, prepare
from jobpool.client.payload.redact_paths import read_redact
from jobpool.client.payload.results import decode_plain
from jobpool.client.quotas.declared import DeclaredQuotas, checked_cap, read_budget
from jobpool.client.quotas.quota import Cost, Quota
from jobpool.client.schedules.declared import DeclaredSchedules
from jobpool.core.application.codec import Codec
from jobpool.core.application.command import Command
from jobpool.core.application.handler_spec import HandlerSpec, check_pool
from jobpool.core.application.redaction import secrets_in, told_of
from jobpool.core.rules.quotas import definition
from jobpool.core.rules.quotas.definition import (
    DEFAULT_THROTTLE_MAX_S,
    DEFAULT_WAIT_S,
    Need,
)
from jobpool.core.units import DurationLike, SizeLike
from jobpool.errors import CodecMismatch, ConfigError, UnknownKind

if TYPE_CHECKING:
    from pathlib import PurePath

    from jobpool.client.declare.schedules import PolicyOptions, ScheduleOptions
    from jobpool.core.rules.schedules.schedule import Declared

P = ParamSpec("P")
R = TypeVar("R")
Start = TypeVar("Start", bound=Callable[[], Any])
Hook = TypeVar("Hook", bound=Callable[[DeadJob], Any])
OnEnqueue = TypeVar("OnEnqueue", bound=Callable[[Enqueuing], object])


class HandlerOptions(TypedDict, total=False):
    """What a handler and a command have in common; see `Registration.job`."""

    aliases: Iterable[str]
    timeout: DurationLike | None
    soft_timeout: DurationLike | None
    memory: SizeLike | None
    max_attempts: int | None
    retry: RetryRules | None
    max_crashes: int | None
    crash_window: DurationLike | None
    memory_growth: float | None
    memory_soft: str | float | None
    heartbeat_timeout: DurationLike | None
    rerun: str
    redact: Iterable[str]
    quotas: Iterable[Quota | Cost]
    concurrency: int | None
    retry_budget: float | Mapping[str, Any] | None


HOOK_POOL = "io"
"""The pool for hooks, if the application has it: they mostly send notifications."""


class Registration:
    """The handlers and hooks of one application, which its children run.

    Args:
        gateway: where the handlers' jobs go.
        payload_max_bytes: most bytes that arguments may take; None: as configured.
    """

    living: ClassVar[weakref.WeakSet[Registration]] = weakref.WeakSet()
    """All of this process, for `jobpool.testing`."""

    def __init__(self, gateway: Gateway, payload_max_bytes: int | None) -> None:
        self.living.add(self)
        self._gateway = gateway
        self._payload_max_bytes = payload_max_bytes
        self._lock = threading.Lock()
        self._handlers: dict[str, Handler[..., Any]] = {}
        self._by_name: dict[str, Handler[..., Any]] = {}
        self._hooks = Hooks()
        self._attempt_hooks = AttemptHooks()
        self._schedules = DeclaredSchedules()
        self._quotas = DeclaredQuotas()

    def job(
        self,
        pool: str,
        *,
        kind: str | None = None,
        aliases: Iterable[str] = (),
        timeout: DurationLike | None = None,
        soft_timeout: DurationLike | None = None,
        memory: SizeLike | None = None,
        max_attempts: int | None = None,
        retry: RetryRules | None = None,
        max_crashes: int | None = None,
        crash_window: DurationLike | None = None,
        memory_growth: float | None = None,
        memory_soft: str | float | None = None,
        heartbeat_timeout: DurationLike | None = None,
        rerun: str = "always",
        redact: Iterable[str] = (),
        quotas: Iterable[Quota | Cost] = (),
        concurrency: int | None = None,
        retry_budget: float | Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Register the decorated function, plain or ``async def``, as a handler.

        Args:
            pool: the pool whose children run it, as in ``--pools``.
            kind: its stable name, stored with its jobs; by default ``module:name``.
            aliases: its former kinds: jobs stored with them run it too.
            timeout: hard time limit of one attempt; its process tree is killed.
            soft_timeout: `SoftTimeout` is raised in it (an async one is canceled).
            memory: most resident memory of one attempt's process tree.
            max_attempts: failures until a job is dead; 5 by default.
            retry: rules by class of exception, for example
                ``{ValueError: "never", ConnectionError: ["10s", "1m"]}``.
            max_crashes: crashes until a job is quarantined; 3 by default.
            crash_window: how long a crash counts; 72 hours by default.
            memory_growth: factor by which the memory limit grows after each
                ``out_of_memory``, up to the pool's ``memory_max`` (without one, half
                of the machine's memory).
            memory_soft: a size, or a share of the memory limit such as 0.8. Over it
                `SoftMemory` is raised in it, once (an async one is canceled).
            heartbeat_timeout: most time without a heartbeat; then it is killed as
                stalled.
            rerun: ``"never"``: an attempt whose end is unknown is the last one.
            redact: arguments that are hidden wherever jobs are shown, such as
                ``["card", "customer.iban"]``; a path goes through lists.
            quotas: of each, a job takes a permit before it begins, or as many as
                ``quota.cost(2)`` says; all at once, or it does not begin.
            concurrency: at most so many of its jobs run at once, on all hosts.
            retry_budget: so many of its retries may begin for each first attempt: 0.2,
                or ``{"ratio": 0.2, "floor": "1/s"}``; later ones wait.
            **unknown: nothing; an option that does not exist is refused.

        Raises:
            ConfigError: a value is wrong (the message names it), the function cannot
                be a handler, its kind or an alias is taken, or a quota can never be
                had or counts by an argument that the function does not have. Nothing
                was registered.
        """
        if not isinstance(pool, str):
            raise ConfigError(
                f"pool: expected its name, got {type(pool).__name__}; write "
                '@jobs.job("cpu"), with parentheses'
            )
        refuse_unknown(unknown, Registration.job)
        check_pool(pool)
        if kind is not None:
            checked_kind(kind)
        former = _checked_aliases(aliases)
        paths = read_redact(redact)
        costs = self._quotas.costs(quotas)
        most = checked_cap(concurrency)
        budget = read_budget(retry_budget)
        limits = read_limits(
            timeout=timeout,
            soft_timeout=soft_timeout,
            memory=memory,
            memory_growth=memory_growth,
            memory_soft=memory_soft,
            heartbeat_timeout=heartbeat_timeout,
        )
        policy = read_policy(
            max_attempts=max_attempts,
            retry=retry,
            max_crashes=max_crashes,
            crash_window=crash_window,
            rerun=rerun,
        )

        def register(function: Callable[P, R]) -> Handler[P, R]:
            check_function(function)
            prepare(function)
            own_kind = kind or kind_of(function)
            spec = HandlerSpec(
                kind=own_kind,
                pool=pool,
                aliases=former,
                limits=limits,
                policy=policy,
                needs=tuple(Need(quota.name, cost) for quota, cost in costs),
                concurrency=most,
                retry_budget=budget,
            )
            handler = Handler(
                function,
                spec,
                gateway=self._gateway,
                payload_max_bytes=self._payload_max_bytes,
                redact=paths,
                quotas=self._quotas.of_handler(function, own_kind, costs),
            )
            self._add(handler, spec)
            return handler

        return register

    def command(
        self,
        kind: str,
        argv: Sequence[str],
        *,
        pool: str,
        stdin: str | None = None,
        exit_codes: Mapping[Any, str] | None = None,
        defaults: Mapping[str, str | float] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | PurePath | None = None,
        result: SizeLike = RESULT,
        **options: Unpack[HandlerOptions],
    ) -> Handler[..., str]:
        """Register a program as a handler; its jobs run it, and nothing else.

        ``jobs.command("pdf", ["pandoc", "{src}", "-o", "{dst}"], pool="cpu")`` has the
        arguments src and dst. Each word stays one word, and no shell reads it. A value
        that begins a word must not begin with ``-``, unless the word ``--`` is before
        it. The program belongs to the attempt: its limits count it, and a kill takes
        it along.

        Args:
            kind: its stable name.
            argv: the program and its words; ``{name}`` is the place of an argument,
                text or a number; ``{{`` and ``}}`` are braces.
            pool: as for `job`.
            stdin: the argument whose text is the program's standard input, as UTF-8.
            exit_codes: what an exit status means: ``"ok"``, ``"retry"`` (it failed) or
                ``"dead"`` (it can never succeed), by status, by range (``"64-78"``) or
                under ``"other"``. By default 0 is ok, and others are tried again.
            defaults: values of arguments that a job may leave out.
            env: variables that it has beside those of its child.
            cwd: the directory that it runs in; None: the application's.
            result: how much of the end of its standard output is the job's result. All
                of it, and its standard error, is the child's output as well.
            **options: as for `job`.

        Returns:
            The handler. Its attempts fail with `CommandFailed`.

        Raises:
            ConfigError: as for `job`; or a word, a place or a status is wrong.
        """
        function = command_function(
            checked_kind(kind),
            argv,
            stdin=stdin,
            exit_codes=exit_codes,
            defaults=defaults,
            env=env,
            cwd=cwd,
            result=result,
        )
        return self.job(pool, kind=kind, **options)(function)

    def add_command(self, command: Command) -> None:
        """Register a command that the configuration declares; as `command`.

        Raises:
            ConfigError: as for `command`.
        """
        self.command(
            command.kind,
            command.argv,
            pool=command.pool,
            stdin=command.stdin,
            exit_codes=command.exit_codes,
            defaults=command.defaults,
            env=command.env,
            cwd=command.cwd,
            result=command.result_bytes,
        )

    def quota(
        self,
        name: str,
        *,
        rate: str | None = None,
        burst: int | None = None,
        concurrency: int | None = None,
        per: str | None = None,
        scope: Literal["fleet", "host"] = "fleet",
        wait: DurationLike = DEFAULT_WAIT_S,
        throttle_max: DurationLike = DEFAULT_THROTTLE_MAX_S,
        breaker: Mapping[str, Any] | None = None,
        retry_budget: float | Mapping[str, Any] | None = None,
    ) -> Quota:
        """Declare a limit that kinds and requests share, on all hosts.

        ``quotas=[quota]`` of a handler takes a permit for each of its jobs before it
        begins; ``with quota.permit():`` takes one for each request. The configuration
        (``[quotas.NAME]``) and ``jobpool quotas set`` may say other numbers. Without
        any, it holds nothing back until these do.

        Args:
            name: its own, up to 100 letters, digits or any of ``_ . -``.
            rate: at most so many begin in so much time: ``"10/s"``, ``"100/m"``,
                ``"5/h"``, ``"1000/d"`` or ``"3/10s"``.
            burst: how many may begin at once after a pause; by default a second's, or
                one of a slower rate.
            concurrency: at most so many are held at the same time.
            per: count each value apart: ``"tenant"``, or an argument such as
                ``"args.vendor_id"`` or ``"args.order.vendor_id"``.
            scope: ``"host"``: each host counts its own, with ``concurrency`` alone.
            wait: how long ``permit()`` waits before the job is snoozed.
            throttle_max: the longest that others are held back by `Throttled` or an
                answer that says so.
            breaker: when its service is taken to be down, so that nothing begins for a
                while: ``{"failures": 0.5, "window": "1m", "requests": 20, "pause":
                "30s"}``; what is left out is as here. ``permit()`` and ``answered()``
                say how requests end. Each bucket has its own.
            retry_budget: so many retries of jobs that need it may begin for each first
                attempt, as in `job`.

        Returns:
            The quota. Declared again with the same values, it is the same one.

        Raises:
            ConfigError: a value is wrong, or the name is taken by a quota with others.
                Nothing was declared.
        """
        return self._quotas.declare(
            name,
            rate=rate,
            burst=burst,
            concurrency=concurrency,
            per=per,
            scope=scope,
            wait=wait,
            throttle_max=throttle_max,
            breaker=breaker,
            retry_budget=retry_budget,
        )

    def cron(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        **policy: Unpack[PolicyOptions],
    ) -> Callable[[Handler[P, R]], Handler[P, R]]:
        """Run the handler below at the times of a cron expression.

        It stands above ``@jobs.job``, on a handler without required arguments::

            @jobs.cron("0 2 * * *", tz="Europe/Berlin")
            @jobs.job("cpu", kind="report.nightly")
            def nightly(scope: str = "all") -> None: ...

        Args:
            expression: five fields, such as ``"0 2 * * 1-5"``, or a name such as
                ``@daily``.
            tz: the zone whose clocks it goes by; UTC by default.
            name: of the schedule; the handler's kind by default.
            **policy: see `PolicyOptions`.

        Raises:
            ConfigError: a value is wrong, or the schedule's name is taken. Nothing was
                declared.
        """

        def declare(handler: Handler[P, R]) -> Handler[P, R]:
            self._schedules.declare_cron(name, handler, expression, tz, policy)
            return handler

        return declare

    def schedule(
        self, name: str, call: Call[Any], /, **options: Unpack[ScheduleOptions]
    ) -> None:
        """Make a call into a job again and again, as long as this code declares it.

        Args:
            name: its own, in this store.
            call: what to run: ``handler.call(...)`` or
                ``handler.options(priority=...).call(...)``.
            **options: see `ScheduleOptions`.

        Raises:
            ConfigError: a value is wrong, or the name is taken. Nothing was declared.
        """
        self._schedules.declare(name, call, options)

    def on_child_start(self, function: Start) -> Start:
        """Run the decorated function, without arguments, in every new child.

        For what does not survive a fork, such as connections and error trackers. If it
        raises, the child ends, and no job is charged.
        """
        return self._hooks.add_child_start(function)

    def on_quarantine(self, function: Hook) -> Hook:
        """Run the decorated function with a `DeadJob` for each quarantined job.

        It runs as a job, in a child, and is tried again if it raises.
        """
        return self._hooks.add_quarantined(function)

    def on_dead(self, function: Hook) -> Hook:
        """Run the decorated function with a `DeadJob` for each job that becomes dead.

        It runs as a job, in a child, and is tried again if it raises.
        """
        return self._hooks.add_dead(function)

    def around_attempt(self, function: Around) -> Around:
        """Enter what the decorated function returns around each attempt, in its child.

        It is a context manager: for connections that are to be closed, spans, a
        tenant's settings. `current` says which attempt it is. The first one that is
        declared is the outermost. What it raises, the attempt has raised; it cannot
        make a failure a success::

            @jobs.around_attempt
            @contextmanager
            def connected() -> Generator[None, None, None]:
                try:
                    yield
                finally:
                    connections.close_all()
        """
        return self._attempt_hooks.add_around(function)

    def on_attempt_succeeded(self, function: Succeeded) -> Succeeded:
        """Call the decorated function with what a handler has returned, in its child.

        What it raises is printed, and changes nothing.
        """
        return self._attempt_hooks.add_succeeded(function)

    def on_attempt_failed(self, function: Failed) -> Failed:
        """Call the decorated function with what a handler has raised, in its child.

        Not for attempts that snooze or are throttled; and one that is killed has
        nobody left to call it (`on_dead`). What it raises is printed, and changes
        nothing.
        """
        return self._attempt_hooks.add_failed(function)

    def on_enqueue(self, function: OnEnqueue) -> OnEnqueue:
        """Call the decorated function with an `Enqueuing`, before a job is enqueued.

        Wherever this application enqueues: what it raises refuses the call, and
        nothing is stored. Not for ticks of schedules, retries and replays, nor by the
        command line, which do not load the application.
        """
        self._gateway.before_enqueue.append(teller(function, self._gateway.encoding))
        return function

    # -- what children call: the Application protocol ------------------------------

    def handler_specs(self) -> tuple[HandlerSpec, ...]:
        """Return every handler's declaration, hooks as internal kinds included.

        Raises:
            ConfigError: a handler's annotations cannot be resolved.
        """
        specs = tuple(handler.spec for handler in self._handlers.values())
        if not specs:
            return ()
        pools = {spec.pool for spec in specs}
        hook_pool = HOOK_POOL if HOOK_POOL in pools else min(pools)
        return specs + self._hooks.specs(hook_pool, self.named_codec())

    def declared_schedules(self) -> tuple[Declared, ...]:
        """Return the schedules that the application declares.

        Raises:
            ArgumentsRejected: the defaults of a handler with ``@jobs.cron`` do not fit.
        """
        return self._schedules.declared()

    def declared_quotas(self) -> tuple[definition.Quota, ...]:
        """Return the quotas that the application declares."""
        return self._quotas.definitions()

    def named_codec(self) -> Codec | None:
        """Return the codec that the application names, if any."""
        return self._gateway.encoding.codec

    def named_store(self) -> str | None:
        """Return the store URL that the application itself names, if any; absolute."""
        argument = self._gateway.argument
        return None if argument is None else find_settings(argument).store

    def start_child(self) -> None:
        """Run the application's ``on_child_start`` hooks in a new child."""
        self._hooks.start_child()

    def invoke(self, kind: str, payload: bytes, result_max_bytes: int) -> bytes:
        """Decode the arguments, run the handler, encode its result.

        Args:
            kind: a registered kind or one of its aliases.
            payload: JSON object of arguments by name.
            result_max_bytes: a longer result is refused.

        Returns:
            The result as JSON; ``b"null"`` for None.

        Raises:
            UnknownKind: no handler has this kind.
            GiveUp: the arguments no longer fit the handler, or the handler raised it.
            TypeError: the result cannot be encoded as JSON.
            ValueError: the result is too large.
            SoftTimeout: the soft limit was reached.
            BaseException: whatever the handler raised.
        """
        hooks = self._attempt_hooks
        if hooks.is_used:
            return hooks.run(lambda: self._returned(kind, payload, result_max_bytes))
        return self._returned(kind, payload, result_max_bytes).encoded

    def _returned(self, kind: str, payload: bytes, result_max_bytes: int) -> Returned:
        if self._hooks.knows(kind):
            with self._quotas.running(kind):
                self._hooks.invoke(kind, payload, self._gateway.encoding)
            return Returned(None, b"null")
        handler = self._by_name.get(kind)
        if handler is None:
            raise UnknownKind(
                f"no handler of this application has the kind {kind[:60]!r}; it has "
                f"{', '.join(sorted(self._by_name)) or 'none at all'}"
            )
        args, kwargs = handler.arguments.decode(payload)
        if self._quotas.is_used:
            with handler.quotas.running(payload):
                result = call(handler, args, kwargs)
        else:
            result = call(handler, args, kwargs)
        return Returned(result, handler.results.encode(result, result_max_bytes))

    def redacted_texts(self, kind: str, payload: bytes) -> Sequence[str]:
        """Return the values in a job's arguments that nobody is shown, longest first.

        Args:
            kind: a registered kind, one of its aliases, or a hook's.
            payload: as for `invoke`; if it cannot be read, nothing is found.
        """
        kind, arguments = told_of(kind, payload)
        handler = self._by_name.get(kind)
        if handler is None or not handler.redact:
            return ()
        encoding = self._gateway.encoding
        try:
            plain = encoding.decoded(arguments or b"null", encoding.name)
            value = msgspec.json.decode(plain)
        except (
            *(CodecMismatch, msgspec.DecodeError),
            *(RecursionError, UnicodeDecodeError),
        ):
            return ()
        return secrets_in(value, handler.redact)

    def hides(self, kind: str) -> bool:
        """Say whether the arguments of a kind's jobs are redacted, or encoded."""
        handler = self._by_name.get(kind)
        return self.named_codec() is not None or bool(handler and handler.redact)

    def knows(self, kind: str) -> bool:
        """Say whether a kind, an alias or a hook is declared here."""
        return kind in self._by_name or self._hooks.knows(kind)

    @property
    def gateway(self) -> Gateway:
        """Where its jobs go."""
        return self._gateway

    def decoder_of(self, kind: str) -> Callable[[bytes | None], Any]:
        """Return the decoder of a kind's results; for an unknown kind, plain JSON."""
        handler = self._by_name.get(kind)
        return decode_plain if handler is None else handler.results.decode

    def _add(self, handler: Handler[..., Any], spec: HandlerSpec) -> None:
        names = (spec.kind, *spec.aliases)
        with self._lock:
            for name in names:
                if name in self._by_name:
                    raise ConfigError(
                        f"kind {name!r} of {handler.name} in {handler.__module__} is "
                        f"taken by {self._by_name[name]!r}; give one of them another "
                        "kind="
                    )
            self._handlers[spec.kind] = handler
            self._by_name |= dict.fromkeys(names, handler)


def _checked_aliases(aliases: Iterable[str]) -> tuple[str, ...]:
    if isinstance(aliases, str):
        raise ConfigError(
            f"aliases: expected a list of kinds, got text; write [{aliases[:60]!r}]"
        )
    if not isinstance(aliases, Iterable):
        raise ConfigError(
            f"aliases: expected a list of kinds, got {type(aliases).__name__}"
        )
    return tuple(checked_kind(alias) for alias in aliases)
