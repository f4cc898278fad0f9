"""What traces cost: a supervisor that sends spans of one job in a hundred, and none.

Pairs alternate, as in `scraped`. The receiver is in this process, and takes everything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from bench.report import US, Sample
from bench.scraped import JOBS, JOBS_QUICK, PAIRS, PAIRS_QUICK, rate_of
from bench.sections import Scale

SHARE = 0.01
WHAT = "no-op, traces of 1 % sent: over none"


def samples(scale: Scale, number: int) -> Iterator[Sample]:
    """Measure one round of pairs.

    Args:
        scale: how much.
        number: the round.
    """
    quick = scale.rounds == 1
    jobs, pairs = (JOBS_QUICK, PAIRS_QUICK) if quick else (JOBS, PAIRS)
    for pair in range(pairs):
        rates = {}
        for traced in (True, False) if pair % 2 else (False, True):
            with _receiver() as (url, taken):
                config = f'[traces]\notlp = "{url}"\nsample = {SHARE}\n'
                rates[traced] = rate_of(jobs, config if traced else "")
            if traced and not taken:
                raise RuntimeError("no span came: the figure would say nothing")
        ratio = rates[True] / rates[False]
        yield Sample("traces", WHAT, US, number * pairs + pair, ratio)


@contextmanager
def _receiver() -> Iterator[tuple[str, list[int]]]:
    """Take what is sent; yield where, and how many bytes each request had."""
    taken: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Take a request."""
            length = int(self.headers["Content-Length"])
            taken.append(len(self.rfile.read(length)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its base's
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
