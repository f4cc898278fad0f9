"""The current span, as OpenTelemetry's interface knows it, if the process has that.

Any framework may have begun it. Nothing is imported for this: who uses OpenTelemetry
has imported it before jobs are enqueued or handlers run.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable

from jobpool.core.application.current import entered
from jobpool.core.jobs.trace import UNRECORDED, TraceContext, read_trace, unrecorded

sources: list[Callable[[], TraceContext | None]] = []
"""Others than OpenTelemetry who know the present trace, if it has no span."""


def current_trace() -> str | None:
    """Return the present trace context, as jobs keep it; None: there is none.

    That of the current span; in a handler that has begun none, its attempt's.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is not None:
        span = api.get_current_span().get_span_context()
        if span.is_valid:
            return TraceContext(
                api.format_trace_id(span.trace_id),
                api.format_span_id(span.span_id),
                span.trace_flags.sampled,
                span.trace_state.to_header(),
            ).text
    for source in sources:
        if (found := source()) is not None:
            return found.text
    attempt = entered()
    return None if attempt is None else attempt.trace or None


def enter_span(context: contextvars.Context, text: str | None, token: int) -> None:
    """Make an attempt's span the current one, so that those of its handler are below.

    The supervisor records it once the attempt has ended, however that did.

    Args:
        context: where the handler runs.
        text: the attempt's trace context, as jobs keep it; None: it is in no trace.
            `UNRECORDED`: nothing of it is to be recorded by others either.
        token: the attempt's.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is None or text is None:
        return
    trace = unrecorded(token) if text == UNRECORDED else read_trace(text)
    if trace is None:
        return
    span = api.SpanContext(
        int(trace.trace_id, 16),
        int(trace.span_id, 16),
        is_remote=True,
        trace_flags=api.TraceFlags(int(trace.sampled)),
        trace_state=api.TraceState.from_header([trace.state]),
    )
    within = api.set_span_in_context(api.NonRecordingSpan(span))
    context.run(sys.modules["opentelemetry.context"].attach, within)
