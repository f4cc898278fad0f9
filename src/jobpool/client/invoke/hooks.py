"""Hooks: the application's functions for a child's start and for dead jobs.

``on_quarantine`` and ``on_dead`` run as ordinary jobs of an internal kind, stored in
the transaction that ends the job. Like all of the application's code they run in a
child, and they are tried again if they fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from jobpool.client.declare.declaration import check_function
from jobpool.client.encoding import Encoding
from jobpool.client.invoke.invocation import call, prepare
from jobpool.client.payload.annotations import signature_of
from jobpool.client.payload.arguments import Arguments
from jobpool.core.application.codec import Codec, decode_json, decode_text
from jobpool.core.application.handler_spec import (
    HOOK_DEAD,
    HOOK_QUARANTINED,
    HandlerSpec,
    with_codec,
)
from jobpool.errors import ArgumentsMisfit, CodecMismatch, ConfigError

F = TypeVar("F", bound=Callable[..., Any])


class DeadJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ended without success, as a hook receives it."""

    id: int
    kind: str
    pool: str
    state: str
    """``dead`` or ``quarantined``."""
    outcome: str | None = None
    """How its last attempt ended."""
    reason: str | None = None
    error_class: str | None = None
    error: str | None = None
    key: str | None = None
    tenant: str | None = None
    arguments: dict[str, Any] | None = None
    """The job's arguments by name, as plain JSON values; None: they are not JSON."""


class _Record(DeadJob, frozen=True, kw_only=True):
    """A `DeadJob` as the supervisor writes it: arguments and error as stored."""

    payload: bytes | None = None
    codec: str | None = None


class Hooks:
    """The hooks of one application."""

    def __init__(self) -> None:
        self._child_start: list[Callable[[], Any]] = []
        self._ended: dict[str, list[Callable[[DeadJob], Any]]] = {}

    def add_child_start(self, function: F) -> F:
        """Register a function without parameters; returns it.

        Raises:
            ConfigError: it is not a function, or needs arguments.
        """
        _check(function, "on_child_start", arguments=())
        self._child_start.append(function)
        return function

    def add_quarantined(self, function: F) -> F:
        """Register a function of one `DeadJob`; returns it.

        Raises:
            ConfigError: it is not a function, or does not take one argument.
        """
        _check(function, "on_quarantine", arguments=("job",))
        self._ended.setdefault(HOOK_QUARANTINED, []).append(function)
        return function

    def add_dead(self, function: F) -> F:
        """Register a function of one `DeadJob`; errors as for `add_quarantined`."""
        _check(function, "on_dead", arguments=("job",))
        self._ended.setdefault(HOOK_DEAD, []).append(function)
        return function

    def start_child(self) -> None:
        """Run the ``on_child_start`` functions in order, up to the first error."""
        for function in self._child_start:
            call(function)

    def specs(self, pool: str, codec: Codec | None) -> tuple[HandlerSpec, ...]:
        """Return the internal kinds that have functions, to run in *pool*."""
        schema = with_codec(_ARGUMENTS.schema, codec)
        return tuple(
            HandlerSpec(kind=kind, pool=pool, schema=schema) for kind in self._ended
        )

    def knows(self, kind: str) -> bool:
        """Return whether this internal kind has functions."""
        return kind in self._ended

    def invoke(self, kind: str, payload: bytes, encoding: Encoding) -> None:
        """Run all functions of an internal kind, in order.

        Args:
            kind: the internal kind.
            payload: a record of an ended job; what it has of the job is as stored.
            encoding: decodes that.

        Raises:
            GiveUp: the payload is not a record of an ended job.
            Exception: the only error.
            ExceptionGroup: the errors, if several functions raised.
        """
        args, kwargs = _ARGUMENTS.decode(payload)
        job = _opened(_job_of(*args, **kwargs), encoding)
        errors: list[Exception] = []
        for function in self._ended[kind]:
            try:
                call(function, (job,))
            except Exception as exc:  # noqa: BLE001 - raised below, after the others
                errors.append(exc)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"{len(errors)} functions of {kind} raised", errors)


def _job_of(job: _Record) -> _Record:
    """Return a hook's record; the signature is its payload's, ``{"job": {...}}``."""
    return job


def _opened(job: _Record, encoding: Encoding) -> DeadJob:
    """Return a hook's argument: the record with arguments and error decoded.

    Raises:
        ArgumentsMisfit: they need another codec or key.
    """
    facts = msgspec.structs.asdict(job)
    payload, codec = facts.pop("payload") or b"null", facts.pop("codec")
    try:
        payload = decode_json(encoding.codec, payload, codec)
        if job.error is not None:
            facts["error"] = decode_text(encoding.codec, job.error, codec)
    except CodecMismatch as exc:
        raise ArgumentsMisfit(str(exc)) from None
    try:
        arguments = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        arguments = None
    facts["arguments"] = arguments if isinstance(arguments, dict) else None
    return DeadJob(**facts)


_ARGUMENTS = Arguments(_job_of, "a hook")


def _check(function: Any, hook: str, *, arguments: tuple[str, ...]) -> None:
    check_function(function)
    prepare(function)
    try:
        signature_of(function).bind(*arguments)
    except TypeError as exc:
        expected = "one argument, the DeadJob" if arguments else "no argument"
        raise ConfigError(
            f"{hook}: the function is called with {expected}, which its signature "
            f"refuses: {exc}"
        ) from None
