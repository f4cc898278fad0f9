"""What an application has of Sentry: jobs in the trace of who enqueues them, and more.

Theory of operation. In a child the application's own client makes the reports, with its
breadcrumbs and tags, but does not send them: its transport leaves them with the child,
and they go to the supervisor with the end of the attempt.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport
from sentry_sdk.utils import event_from_exception

from jobpool.client.gateway import Told
from jobpool.client.jobpool import JobPool
from jobpool.core.application import current_span, reports
from jobpool.core.application.current import RUN_VARIABLE, Current, current
from jobpool.core.jobs.flow import NewFlow
from jobpool.core.jobs.job import Enqueued, NewJob
from jobpool.core.jobs.trace import UNDECIDED, TraceContext, read_trace
from jobpool.core.jobs.uniform_batch import UniformJobs
from jobpool.errors import GiveUp, Snooze, SoftMemory, SoftTimeout

OPERATION = "queue.process"
PUBLISHES = "queue.publish"
_ORIGIN = "auto.queue.jobpool"
SEND_S = 2.0
"""How long an attempt waits for Sentry if its supervisor sends nothing."""
_INT_MAX = 2**63 - 1
_REPORT_S = 0.2
"""Time to report the attempt's end before its time limit."""

_ANYWHERE = (SoftTimeout, SoftMemory, MemoryError)
"""Raised wherever a handler just is: all of one kind are one issue."""


def connect(jobs: JobPool) -> None:
    """Have an application's jobs in its Sentry: their traces, scopes and errors.

    What is enqueued belongs to the trace of who enqueues it, below a span of its own.
    In a child each attempt has a scope of its own, with tags of its job, and is a
    transaction of that trace. An exception that ends it is reported once no retry is
    left, by the supervisor, if that has ``[sentry] dsn``; else by the application's
    client, before the attempt's end. Not from jobs whose arguments are hidden: of
    these, the supervisor reports what it may know.

    Args:
        jobs: the application, which calls ``sentry_sdk.init`` itself, when it is
            imported or in ``on_child_start``.
    """
    if _present_trace not in current_span.sources:
        current_span.sources.append(_present_trace)
    jobs.gateway.around = _publishing

    @jobs.around_attempt
    @contextmanager
    def in_sentry() -> Generator[None, None, None]:
        now, transport = current(), _handing_over()
        made: list[str] = []
        try:
            with _scope(now, transport, made.append, captures=not jobs.hides(now.kind)):
                yield
        finally:
            if transport is None and made:  # to ask it to send starts its thread
                _send_now(now)


@contextmanager
def _publishing(what: Sequence[NewJob] | NewFlow) -> Generator[Told, None, None]:
    """Have a span around what stores jobs, if Sentry is in one."""
    if sentry_sdk.get_current_span() is None:
        yield lambda _stored: None
        return
    name, data = _published(what)
    with (
        sentry_sdk.new_scope(),  # other threads may have that of the request as well
        sentry_sdk.start_span(op=PUBLISHES, name=name, origin=_ORIGIN) as span,
    ):
        _describe(span, data)

        def told(stored: Sequence[Enqueued]) -> None:
            if len(stored) == 1:
                _describe(span, {"message.id": str(stored[0].id)})

        yield told


def _published(what: Sequence[NewJob] | NewFlow) -> tuple[str, dict[str, Any]]:
    """Return the name of what is enqueued, and what Sentry's conventions want of it."""
    if isinstance(what, NewFlow):
        return what.name, {}
    alike = (what.pattern,) if isinstance(what, UniformJobs) else what
    kinds, pools = {job.kind for job in alike}, {job.pool for job in alike}
    name = kinds.pop() if len(kinds) == 1 else f"{len(what)} jobs"
    found: dict[str, Any] = {"batch.message_count": len(what)}
    if len(what) == 1:
        found = {"message.body.size": len(what[0].payload)}
    if len(pools) == 1:
        found["destination.name"] = pools.pop()
    return name, found


def _describe(span: Any, data: Mapping[str, Any]) -> None:
    span.set_data("messaging.system", "jobpool")
    for name, value in data.items():
        span.set_data(f"messaging.{name}", value)


class _LeftWithChild(Transport):
    """Leaves what is to be sent with the child.

    Attributes:
        error_id: of the event that tells of the attempt's end.
    """

    error_id: str | None = None
    error_was_made = False

    def capture_envelope(self, envelope: Envelope) -> None:
        """Leave an envelope with the child, or say that there is no room."""
        of_error = envelope.headers.get("event_id") == self.error_id
        self.error_was_made |= of_error
        report = _report_of(envelope, of_error=of_error)
        if not reports.hand_over(report):
            print(  # noqa: T201 - it is the attempt's output
                f"jobpool: a report to Sentry of {report.size_bytes} bytes was left "
                f"out: an attempt's may have {reports.REPORTS_MAX_BYTES} together",
                file=sys.stderr,
            )


def _report_of(envelope: Envelope, *, of_error: bool) -> reports.Report:
    trace = envelope.headers.get("trace") or {}
    return reports.Report(
        str(envelope.headers.get("event_id") or uuid.uuid4().hex),
        of_error=of_error,
        items=[
            reports.Item(
                {name: _passable(value) for name, value in item.headers.items()},
                item.get_bytes(),
            )
            for item in envelope.items
        ],
        trace={name: _text(value) for name, value in trace.items()},
    )


def _passable(value: Any) -> reports.Value:
    """Return what a supervisor can be sent: the name of an attachment may be a Path."""
    match value:
        case None | bool() | float():
            return value
        case int() if abs(value) <= _INT_MAX:
            return value
    return _text(value)


def _text(value: Any) -> str:
    """Return a text that can be encoded, also that of a file of any name."""
    return str(value).encode(errors="replace").decode()


@contextmanager
def _scope(
    now: Current,
    transport: _LeftWithChild | None,
    note: Callable[[str], None],
    *,
    captures: bool,
) -> Generator[None, None, None]:
    """Have a scope around an attempt, and report what ends it.

    Args:
        now: the attempt.
        transport: leaves reports with the child, if a supervisor sends them.
        note: called with the sort of each report.
        captures: what ends the attempt is reported.
    """

    def noted(event: Any, _hint: Any) -> Any:
        note(event.get("type", "event"))
        return event

    snoozed: Snooze | None = None
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()
        scope.add_event_processor(noted)
        tags = {"kind": now.kind, "job": str(now.id), "attempt": str(now.attempt)}
        for name, value in tags.items():
            scope.set_tag(f"jobpool.{name}", value)
        see = {"attempt": now.attempt, "see": f"jobpool show {now.id}"}
        scope.set_context("jobpool", now.limits._asdict() | see)
        begun = sentry_sdk.continue_trace(
            _headers_of(now), op=OPERATION, name=now.kind, source="task", origin=_ORIGIN
        )
        _describe(begun, _processed(now))
        with sentry_sdk.start_transaction(begun) as span:
            try:
                yield
                span.set_status("ok")
            except Snooze as exc:
                snoozed = exc
                span.set_status("ok")
            except BaseException as exc:
                if captures and (transport is not None or _is_last(exc, now)):
                    _capture(exc, now.kind, transport)
                raise
    if snoozed is not None:
        raise snoozed


def _processed(now: Current) -> dict[str, Any]:
    pool, waited_s, payload_bytes = now.delivery
    return {
        "message.id": str(now.id),
        "destination.name": pool,
        "message.body.size": payload_bytes,
        "message.retry.count": now.attempt - 1,
        "message.receive.latency": waited_s * 1000,
    }


def _is_last(exc: BaseException, now: Current) -> bool:
    """Say whether no retry is left, as far as a child can tell: rules may differ."""
    limits = now.limits
    return isinstance(exc, GiveUp) or limits.failures + 1 >= limits.max_attempts


def _send_now(now: Current) -> None:
    """Have the application's own client send what it has: its thread is ended soon."""
    if RUN_VARIABLE in os.environ and sentry_sdk.get_client().is_active():
        left_s = now.deadline_monotonic_s - time.monotonic() - _REPORT_S
        sentry_sdk.flush(timeout=max(0.0, min(SEND_S, left_s)))


def _handing_over() -> _LeftWithChild | None:
    """Have the application's client leave reports with the child; None: it sends them.

    None also if it has no client, or no supervisor would send them.
    """
    client = sentry_sdk.get_client()
    if RUN_VARIABLE not in os.environ or not client.is_active():
        return None
    client.monitor = None  # its thread would outlive the attempt
    if not reports.are_wanted():
        return None
    if not isinstance(client.transport, _LeftWithChild):
        client.transport = _LeftWithChild(client.options)
    return client.transport


def _capture(exc: BaseException, kind: str, transport: _LeftWithChild | None) -> None:
    options = sentry_sdk.get_client().options
    event, hint = event_from_exception(
        exc,
        client_options=options,
        mechanism={"type": "jobpool", "handled": False},
    )
    if isinstance(exc, _ANYWHERE):
        event["fingerprint"] = ["jobpool", kind, type(exc).__name__]
    for frame in _frames_of(event):
        if str(frame.get("module")).startswith("jobpool."):
            frame["in_app"] = False
    if transport is None:
        sentry_sdk.capture_event(event, hint=hint)
        return
    transport.error_id = event["event_id"] = uuid.uuid4().hex
    transport.error_was_made = False
    sentry_sdk.capture_event(event, hint=hint)
    if not transport.error_was_made:
        # A filter of the application's has left it out, or it was reported already.
        reports.hand_over(reports.Report(transport.error_id, of_error=True))


def _frames_of(event: Any) -> list[dict[str, Any]]:
    values = event.get("exception", {}).get("values", [])
    return [
        frame
        for value in values
        for frame in (value.get("stacktrace") or {}).get("frames", [])
    ]


def _headers_of(now: Current) -> dict[str, str]:
    trace = read_trace(now.trace)
    if trace is None:
        return {}
    decided = "" if trace.state == UNDECIDED else f"-{int(trace.sampled)}"
    return {"sentry-trace": f"{trace.trace_id}-{trace.span_id}{decided}"}


def _present_trace() -> TraceContext | None:
    """Return the trace that Sentry is in; None: it is not there, or in none."""
    if not sentry_sdk.get_client().is_active():
        return None
    trace_id, _, rest = (sentry_sdk.get_traceparent() or "").partition("-")
    span_id, _, sampled = rest.partition("-")
    found = read_trace(f"00-{trace_id}-{span_id}-{int(sampled == '1'):02x}")
    return found if found is None or sampled else found._replace(state=UNDECIDED)
