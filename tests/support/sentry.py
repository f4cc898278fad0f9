"""A receiver of Sentry's envelopes on loopback, which keeps what it is sent."""

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.waiting import wait_until

PATIENCE_S = 30.0


class Sentry:
    """Listens while it is entered.

    Attributes:
        dsn: of its project.
        items: all that have come: type and JSON.
        heads: what their envelopes begin with.
        status: what it answers; 200: it takes them.
    """

    def __init__(self):
        self.items = []
        self.heads = []
        self.status = 200
        self.asked = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                receiver.asked += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if receiver.status == 200 and self.path == "/api/42/envelope/":
                    receiver.heads.append(json.loads(body.split(b"\n")[0]))
                    receiver.items += items_in(body)
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args):
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.dsn = f"http://key@127.0.0.1:{self._server.server_port}/42"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_exc):
        self._server.shutdown()
        self._server.server_close()

    def of(self, sort):
        """Return what has come of a sort: "event", "check_in"."""
        return [item for kind, item in self.items if kind == sort]

    def wait_for(self, sort, number=1, where=lambda _item: True):
        """Wait for so many of a sort."""

        def found():
            some = [item for item in self.of(sort) if where(item)]
            return some if len(some) >= number else None

        return wait_until(found, PATIENCE_S, f"{number} of {sort} at Sentry")


def items_in(body):
    """Return the items of an envelope."""
    lines = body.split(b"\n")[1:]
    found = []
    for head, item in zip(lines[::2], lines[1::2], strict=False):
        if head:
            found.append((json.loads(head)["type"], json.loads(item)))
    return found
