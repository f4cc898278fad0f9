"""A receiver of OpenTelemetry's protocol on loopback, which keeps what it is sent."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)


class Span(NamedTuple):
    """A span as it was sent; ids are hexadecimal."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple
    kind: int
    began_ns: int
    ended_ns: int
    attributes: dict
    events: dict
    error: str | None
    """The description of its status, if that is an error."""
    service: str


class Receiver:
    """Listens while it is entered.

    Attributes:
        spans: all that have come.
        status: what it answers; 200: it takes them.
    """

    def __init__(self):
        self.spans = []
        self.status = 200
        self.asked = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                receiver.asked += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if receiver.status == 200 and self.path == "/v1/traces":
                    receiver.spans += spans_in(body)
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args):
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_exc):
        self._server.shutdown()
        self._server.server_close()

    def named(self, name):
        """Return the spans of a name, in the order of their beginnings."""
        return sorted(
            (one for one in self.spans if one.name == name),
            key=lambda one: one.began_ns,
        )


def spans_in(body):
    """Return the spans of a request."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        _span(one, _values(group.resource.attributes).get("service.name"))
        for group in request.resource_spans
        for scope in group.scope_spans
        for one in scope.spans
    ]


def _span(one, service):
    return Span(
        name=one.name,
        trace_id=one.trace_id.hex(),
        span_id=one.span_id.hex(),
        parent_id=one.parent_span_id.hex(),
        links=tuple(link.span_id.hex() for link in one.links),
        kind=one.kind,
        began_ns=one.start_time_unix_nano,
        ended_ns=one.end_time_unix_nano,
        attributes=_values(one.attributes),
        events={event.name: _values(event.attributes) for event in one.events},
        error=one.status.message if one.status.code == 2 else None,
        service=service,
    )


def _values(pairs):
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs
    }
