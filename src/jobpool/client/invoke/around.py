"""What an application wants done around attempts, and before jobs are enqueued.

Theory of operation. All of it runs in the process that it is about: the child of the
attempt, or whoever enqueues. Nothing of it can make a failed attempt a success: what a
context manager swallows is raised all the same. Who is told of an end, after all that
is around the attempt, comes too late to change it: what that raises is printed, as part
of the attempt's output.

An attempt that is killed has nobody left to tell of it: that is `on_dead`'s.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple, TypeVar

import msgspec

from jobpool.client.declare.declaration import check_function
from jobpool.client.encoding import Encoding
from jobpool.client.payload.annotations import signature_of
from jobpool.core.jobs.job import NewJob
from jobpool.errors import ConfigError, Snooze

Around = TypeVar("Around", bound=Callable[[], AbstractContextManager[Any]])
Succeeded = TypeVar("Succeeded", bound=Callable[[Any], object])
Failed = TypeVar("Failed", bound=Callable[[BaseException], object])


class Enqueuing(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is about to be enqueued, as ``on_enqueue`` gets it."""

    kind: str
    pool: str
    arguments: dict[str, Any]
    """By name, as plain JSON values."""
    priority: int = 0
    key: str | None = None
    unique: str | None = None
    tenant: str | None = None


class Returned(NamedTuple):
    """What a handler has returned, and the same as JSON."""

    value: Any
    encoded: bytes


class AttemptHooks:
    """What is done around the attempts of one application."""

    def __init__(self) -> None:
        self._around: list[Callable[[], AbstractContextManager[Any]]] = []
        self._succeeded: list[Callable[[Any], object]] = []
        self._failed: list[Callable[[BaseException], object]] = []
        self.is_used = False

    def add_around(self, function: Around) -> Around:
        """Register a function that returns a context manager; returns it.

        Raises:
            ConfigError: it is not a function, or needs arguments.
        """
        _check(function, "around_attempt", ())
        self._around.append(function)
        self.is_used = True
        return function

    def add_succeeded(self, function: Succeeded) -> Succeeded:
        """Register a function of what handlers return; returns it.

        Raises:
            ConfigError: it is not a function, or does not take one argument.
        """
        _check(function, "on_attempt_succeeded", ("result",))
        self._succeeded.append(function)
        self.is_used = True
        return function

    def add_failed(self, function: Failed) -> Failed:
        """Register a function of exceptions; errors as for `add_succeeded`."""
        _check(function, "on_attempt_failed", ("error",))
        self._failed.append(function)
        self.is_used = True
        return function

    def run(self, attempt: Callable[[], Returned]) -> bytes:
        """Run an attempt with all that is around it; return its result as JSON.

        Raises:
            BaseException: whatever the attempt raised, or a context manager.
        """
        try:
            returned = self._within(attempt)
        except BaseException as exc:
            if not isinstance(exc, Snooze):
                _tell(self._failed, exc)
            raise
        _tell(self._succeeded, returned.value)
        return returned.encoded

    def _within(self, attempt: Callable[[], Returned]) -> Returned:
        outcome: Returned | BaseException
        with ExitStack() as stack:
            try:
                for enter in self._around:
                    stack.enter_context(_context(enter))
                outcome = attempt()
            except BaseException as exc:
                outcome = exc
                raise
        if isinstance(outcome, BaseException):  # a context manager has swallowed it
            raise outcome
        return outcome


def teller(
    function: Callable[[Enqueuing], object], encoding: Encoding
) -> Callable[[NewJob], None]:
    """Return what tells a function of a job that is about to be enqueued.

    Raises:
        ConfigError: it is not a function, or does not take one argument.
    """
    _check(function, "on_enqueue", ("job",))

    def tell(job: NewJob) -> None:
        payload = encoding.decoded(job.payload, job.codec)
        function(
            Enqueuing(
                kind=job.kind,
                pool=job.pool,
                arguments=msgspec.json.decode(payload),
                priority=job.priority,
                key=job.key,
                unique=job.unique,
                tenant=job.tenant,
            )
        )

    return tell


def _context(enter: Callable[[], AbstractContextManager[Any]]) -> Any:
    context = enter()
    if not hasattr(context, "__exit__"):
        raise ConfigError(
            f"around_attempt: {enter!r} has returned {type(context).__name__}, not a "
            "context manager; write @contextmanager below @jobs.around_attempt"
        )
    return context


def _tell(functions: list[Callable[[Any], object]], of: Any) -> None:
    """Call functions; what one of them raises is printed, and keeps no other."""
    for function in functions:
        try:
            function(of)
        except KeyboardInterrupt:  # somebody's, who runs a test
            raise
        except BaseException:  # noqa: BLE001 - the attempt has ended as it has
            traceback.print_exc()


def _check(function: Any, hook: str, arguments: tuple[str, ...]) -> None:
    check_function(function)
    try:
        signature_of(function).bind(*arguments)
    except TypeError as exc:
        expected = "one argument" if arguments else "no argument"
        raise ConfigError(
            f"{hook}: the function is called with {expected}, which its signature "
            f"refuses: {exc}"
        ) from None
