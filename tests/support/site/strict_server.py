"""A vendor's HTTP server, in a process of its own: it says wait, and keeps a ledger.

More than `most` requests within a second are too many. Then it answers 429 until
`closed_s` have passed, and says so in ``Retry-After``. It can be killed and started
again: what was done is in the ledger, and not done again for who asks again since the
answer was lost.
"""

import contextlib
import math
import os
import subprocess
import sys
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from support.waiting import wait_until

BEGUN, DONE, REPEATED, ENDED = "begun", "done", "repeated", "ended"
REFUSED, ANSWERED = "refused", "answered"
_WINDOW_S = 1.0
_PATIENCE_S = 20.0


class Entry(NamedTuple):
    """A line of the ledger."""

    at_s: float
    """By the clock that all processes of a host share."""
    what: str
    job: int
    until_s: float
    """When a refusal ends; otherwise 0."""


class StrictServer:
    """The server as a test sees it; started and stopped with ``with``.

    Args:
        folder: for its ledger.
        most: requests that it serves within a second.
        closed_s: how long it refuses all when there were more.
        works_s: how long a request takes.
    """

    def __init__(self, folder, *, most, closed_s, works_s):
        self.ledger = Path(folder) / "server-ledger"
        self._options = [str(one) for one in (most, closed_s, works_s)]
        self._port = 0
        self._process = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}/"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_exc):
        self.kill()

    def start(self):
        """Start it, again on its port, and wait until it answers."""
        words = [sys.executable, __file__, str(self.ledger), str(self._port)]
        self._process = subprocess.Popen(
            [*words, *self._options],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        said = self._process.stdout.readline()
        assert said, f"the server ended with {self._process.wait()}"
        self._port = int(said)

    def kill(self):
        """Kill it at once; requests under way get no answer."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def entries(self, *whats):
        """Return what is in the ledger, in order; some of it."""
        return [one for one in read(self.ledger) if not whats or one.what in whats]

    def wait_done(self, count):
        """Wait until it has done so many jobs."""
        wait_until(
            lambda: len(self.entries(DONE)) >= count, _PATIENCE_S * 10, f"{count} done"
        )


def read(path):
    """Return the entries of a ledger."""
    lines = path.read_text().splitlines() if path.exists() else []
    parts = (line.split() for line in lines)
    return [Entry(float(at), w, int(job), float(until)) for at, w, job, until in parts]


class _Vendor(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, ledger, port, most, closed_s, works_s):
        super().__init__(("127.0.0.1", port), _Answers)
        self._file = os.open(ledger, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._lock = threading.Lock()
        self._done = {one.job for one in read(ledger) if one.what == DONE}
        self._recent = deque()
        self._closed_until_s = 0.0
        self._most, self._closed_s, self.works_s = most, closed_s, works_s

    def begin(self, job):
        """Return for how long a request is refused; None: it is not."""
        with self._lock:
            now_s = time.monotonic()
            while self._recent and self._recent[0] <= now_s - _WINDOW_S:
                self._recent.popleft()
            self._recent.append(now_s)
            if now_s >= self._closed_until_s and len(self._recent) > self._most:
                self._closed_until_s = now_s + self._closed_s
            if now_s < self._closed_until_s:
                self._write(REFUSED, job, self._closed_until_s)
                return self._closed_until_s - now_s
            self._write(BEGUN, job)
            return None

    def do(self, job):
        """Do a job, unless it was done."""
        with self._lock:
            self._write(REPEATED if job in self._done else DONE, job)
            self._done.add(job)

    def note(self, what, job):
        with self._lock:
            self._write(what, job)

    def _write(self, what, job, until_s=0.0):
        line = f"{time.monotonic():.6f} {what} {job} {until_s:.6f}\n"
        os.write(self._file, line.encode())


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        job, server = int(self.path.strip("/")), self.server
        left_s = server.begin(job)
        if left_s is not None:
            self.send_response(429)
            self.send_header("Retry-After", str(math.ceil(left_s)))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        time.sleep(server.works_s)
        server.do(job)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        server.note(ENDED, job)  # Before anybody can know that it has ended.
        self.end_headers()
        server.note(ANSWERED, job)

    def log_message(self, *_args):
        """Say nothing."""


def main(ledger, port, most, closed_s, works_s):
    """Serve until killed; print the port."""
    with _Vendor(
        Path(ledger), int(port), int(most), float(closed_s), float(works_s)
    ) as server:
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
