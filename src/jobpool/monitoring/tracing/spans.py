"""An attempt that has ended, as a span of OpenTelemetry.

Names are those of its semantic conventions for messaging; what these do not have begins
with ``jobpool.``. A span is below the one in which its job was enqueued, if there is
one, so that both are in one trace; it also links to it, as the conventions have it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from signal import Signals

from opentelemetry.sdk.environment_variables import OTEL_SERVICE_NAME
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from jobpool.core.events.figures import AttemptTraced
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.jobs.trace import TraceContext, read_trace
from jobpool.core.version import __version__

SYSTEM = "jobpool"
_NO_ERROR = frozenset({None, Outcome.SUCCEEDED, Outcome.INTERRUPTED, Outcome.CANCELED})
"""Ends of which nobody need hear as errors: it snoozed, or was ended from outside."""
_SCOPE = InstrumentationScope(SYSTEM, __version__)


def resource() -> Resource:
    """Return who sends: as OpenTelemetry's variables say, else jobpool on this host."""
    named: dict[str, str] = {"host.name": socket.gethostname()}
    own = Resource.create(named)
    given = os.environ.get(OTEL_SERVICE_NAME) or ""
    unnamed = str(own.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
    if given or not unnamed:
        return own
    return own.merge(Resource({SERVICE_NAME: SYSTEM}))


def span_of(event: AttemptTraced, sender: Resource) -> ReadableSpan:
    """Return the span of an attempt.

    Args:
        event: the attempt.
        sender: as of `resource`.
    """
    cause = read_trace(event.cause)
    parent = None if cause is None else _context(cause, is_remote=True)
    is_error = event.outcome not in _NO_ERROR
    return ReadableSpan(
        name=f"process {event.kind}",
        context=_context(event.trace, is_remote=False),
        parent=parent,
        resource=sender,
        attributes=_attributes(event, is_error=is_error),
        events=_exceptions(event),
        links=() if parent is None else (Link(parent),),
        kind=SpanKind.CONSUMER,
        status=Status(StatusCode.ERROR, event.reason) if is_error else Status(),
        start_time=event.began_ns,
        end_time=event.ended_ns,
        instrumentation_scope=_SCOPE,
    )


def _context(trace: TraceContext, *, is_remote: bool) -> SpanContext:
    return SpanContext(
        int(trace.trace_id, 16),
        int(trace.span_id, 16),
        is_remote=is_remote,
        trace_flags=TraceFlags(int(trace.sampled)),
        trace_state=TraceState.from_header([trace.state]),
    )


def _attributes(
    event: AttemptTraced, *, is_error: bool
) -> Mapping[str, str | int | float]:
    outcome = "snoozed" if event.outcome is None else str(event.outcome)
    found: dict[str, str | int | float | None] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": event.pool,
        "messaging.message.id": str(event.id),
        "messaging.message.body.size": event.payload_bytes,
        "error.type": (event.error_class or outcome) if is_error else None,
        "jobpool.kind": event.kind,
        "jobpool.slot": event.slot,
        "jobpool.attempt": event.attempt,
        "jobpool.outcome": outcome,
        "jobpool.state": str(event.state),
        "jobpool.reason": event.reason,
        "jobpool.waited_seconds": event.waited_s,
        "jobpool.cpu_seconds": event.cpu_s,
        "jobpool.peak_memory_bytes": event.peak_rss_bytes,
        "jobpool.signal": _signal(event.signal),
        "jobpool.exit_code": event.exit_code,
    }
    return {name: value for name, value in found.items() if value is not None}


def _exceptions(event: AttemptTraced) -> tuple[Event, ...]:
    if event.error_class is None:
        return ()
    told = {"exception.type": event.error_class, "exception.message": event.error or ""}
    return (Event("exception", told, event.ended_ns),)


def _signal(number: int | None) -> str | None:
    if number is None:
        return None
    try:
        return Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)
