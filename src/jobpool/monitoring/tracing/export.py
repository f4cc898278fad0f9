"""Sends the spans of attempts by OTLP over HTTP, from a thread of the supervisor.

While the receiver is away, the exporter tries again for some seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from jobpool.core.clock import Clock
from jobpool.core.events.event import Event
from jobpool.core.events.figures import AttemptTraced
from jobpool.core.events.supervisor import SpansDropped
from jobpool.monitoring.sending import Bounds, Sending
from jobpool.monitoring.tracing.spans import resource, span_of

ASIDE_MAX = 8192
"""Spans that wait to be sent: a few MiB."""
BATCH = 512
CLOSE_S = 2.0
"""How long an end waits for the last spans to be sent."""
PATH = "/v1/traces"
_LIBRARIES = ("opentelemetry", "urllib3")


class SpanExport:
    """Sends spans while it is entered.

    Args:
        otlp: the receiver's URL; the usual path is added unless it is there.
        dropped: takes an event when spans were lost.
        clock: for the times of such events.
    """

    def __init__(
        self, otlp: str, dropped: Callable[[Event], None], clock: Clock
    ) -> None:
        self._url = otlp if otlp.endswith(PATH) else otlp + PATH
        self._dropped = dropped
        self._clock = clock
        bounds = Bounds(ASIDE_MAX, BATCH)
        self._sending: Sending[AttemptTraced, ReadableSpan] = Sending(
            "jobpool-traces", self, bounds, clock
        )
        for name in _LIBRARIES:  # else their complaints are mixed with the log
            logging.getLogger(name).addHandler(logging.NullHandler())
        self._exporter = OTLPSpanExporter(endpoint=self._url)
        self._sender = resource()

    def hears(self, kind: type[Event]) -> bool:
        """Say whether events of a class are used."""
        return kind is AttemptTraced

    def observe(self, event: Event) -> None:
        """Put a span aside."""
        if isinstance(event, AttemptTraced):
            self._sending.put(event)

    def __enter__(self) -> Self:
        """Begin to send, in the background."""
        self._sending.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Send what is left, if that does not take long."""
        self._sending.close(CLOSE_S, self._hurry)

    def _hurry(self) -> None:
        """Have it try no more."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    # -- in the thread that sends ------------------------------------------------------

    def make(self, thing: AttemptTraced) -> ReadableSpan:
        """Return an attempt's span."""
        return span_of(thing, self._sender)

    def send(self, made: Sequence[ReadableSpan]) -> None:
        """Offer spans to the receiver."""
        if self._exporter.export(made) is SpanExportResult.SUCCESS:
            self._sending.arrived(len(made))
        else:
            self._sending.lose(len(made), f"{self._url} has not taken them")

    def tell(self, things: int, reason: str) -> None:
        """See `Carrier.tell`."""
        at_ms = self._clock.utc_ms()
        self._dropped(SpansDropped(at_ms=at_ms, spans=things, reason=reason))
