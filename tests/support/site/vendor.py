"""A vendor that answers over HTTP, refuses what is too much, and goes down for a while.

It keeps a ledger of each request, by which a trial is judged: each job was served once,
and nobody asked while it had said to wait.
"""

import math
import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from support.waiting import Running, wait_until

CAP = 6
"""Below the slots of all supervisors of a trial."""
WORKS_S = 0.01
"""An answer takes so long, so that the cap binds."""
FULL_S = 10.0
"""So long, from the first request on, answers wait until the cap is reached."""
APP = """
import http.client, urllib.error, urllib.request

vendor = jobs.quota("vendor", rate="150/s", burst=20, concurrency={CAP})


def ask(url, number, told):
    try:
        with urllib.request.urlopen(f"{url}{number}", timeout=20) as answer:
            told(answer.status, answer.headers)
            return number
    except urllib.error.HTTPError as exc:
        told(exc.code, exc.headers)
        raise
    except (OSError, http.client.HTTPException) as exc:  # it is down
        raise jobpool.Throttled(vendor, after="2s") from exc


@jobs.job("io", kind="starts", quotas=[vendor], max_attempts=1)
def starts(url: str, number: int):
    return ask(url, number, vendor.answered)


@jobs.job("io", kind="asks", max_attempts=1)
def asks(url: str, number: int):
    with vendor.permit() as permit:
        return ask(url, number, permit.answered)
""".replace("{CAP}", str(CAP))
"""Handlers whose jobs have one attempt: one failure would end them."""
REFUSES = 70
"""One request in so many is refused in any case."""
WAIT_S = 3.0
"""For how long the vendor wants to be left alone."""


class Request(NamedTuple):
    """A request as the vendor saw it."""

    number: int
    at_s: float
    quiet_until_s: float
    """It was refused, and told not to come back before; 0: it was served."""


class Vendor:
    """The vendor: at most so many requests a second.

    Args:
        per_s: beyond so many it refuses.
    """

    def __init__(self, per_s=100):
        self.ledger = []
        self._per_s = per_s
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._server = None
        # Nobody else gets the port while the vendor is down: bound, it refuses.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self._port = self._place.getsockname()[1]
        self._running = Running()
        self._asking = 0
        self._full_by_s = None
        self.most_at_once = 0
        self.come_up()

    def __enter__(self):
        self._running.__enter__()
        return self

    def __exit__(self, *_exc):
        self.go_down()
        self._place.close()
        self._running.__exit__()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}/"

    def come_up(self):
        """Listen, on the same port as before."""
        server = _Server(("127.0.0.1", self._port), _Answers)
        server.vendor = self
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def go_down(self):
        """Answer nobody any more: connections are refused."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    @contextmanager
    def asked(self):
        """Count a request that is under way.

        The first ones wait for each other: on a busy machine, too, as many meet here as
        may. Whoever is let in beyond them is counted like them.
        """
        with self._came:
            self._asking += 1
            self.most_at_once = max(self.most_at_once, self._asking)
            self._came.notify_all()
            now_s = time.monotonic()
            self._full_by_s = self._full_by_s or now_s + FULL_S
            self._came.wait_for(
                lambda: self.most_at_once >= CAP, max(0.0, self._full_by_s - now_s)
            )
        try:
            time.sleep(WORKS_S)
            yield
        finally:
            with self._lock:
                self._asking -= 1

    def answer(self, number):
        """Return the status and the headers of the answer to a request."""
        with self._lock:
            now_s, utc_s = time.monotonic(), time.time()
            if self.is_too_much(now_s):
                header, until_s = _patience(len(self.ledger), utc_s)
                self.ledger.append(Request(number, now_s, now_s + until_s - utc_s))
                return 429, header
            self.ledger.append(Request(number, now_s, 0.0))
            return 200, {}

    def is_too_much(self, now_s):
        """Say whether one more now is too much; whoever is too early is.

        So is one in some, in case nobody is quick enough to ask too much.
        """
        recent = [one for one in self.ledger[-500:] if one.at_s > now_s - 1.0]
        quiet_s = max((one.quiet_until_s for one in recent), default=0.0)
        in_turn = len(self.ledger) % REFUSES == REFUSES - 1
        return in_turn or len(recent) >= self._per_s or now_s < quiet_s

    def served(self):
        """Return how often each request was served."""
        return Counter(one.number for one in self.ledger if not one.quiet_until_s)

    def refusals(self):
        """Return the requests that were refused."""
        return [one for one in self.ledger if one.quiet_until_s]

    def disturbed(self, heard_s):
        """Return requests that came later than so long after it had said to wait.

        While the machine runs: what was let go before comes late otherwise.
        """
        found, refusals = [], self.refusals()
        for one in self.ledger:
            found += [
                one
                for said in refusals
                if said.at_s < one.at_s < said.quiet_until_s
                and self._running.ran_s(said.at_s, one.at_s) > heard_s
            ][:1]
        return found


class _Server(ThreadingHTTPServer):
    """Takes up many at once: whom it had no room for would come a second later."""

    request_queue_size = 128
    daemon_threads = False
    """Going down, it answers what it has taken up."""


class _Answers(BaseHTTPRequestHandler):
    """The answers of a `Vendor`."""

    def do_GET(self):
        with self.server.vendor.asked():
            status, headers = self.server.vendor.answer(int(self.path[1:]))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args):
        """Keep the output clean."""


def _patience(turn, utc_s):
    """Return a header that asks for patience, in one of its forms, and until when."""
    whole_s = math.ceil(utc_s + WAIT_S)
    forms = (
        ({"Retry-After": f"{WAIT_S:.0f}"}, utc_s + WAIT_S),
        (
            {
                "Retry-After": format_datetime(
                    datetime.fromtimestamp(whole_s, UTC), True
                )
            },
            whole_s,
        ),
        ({"X-RateLimit-Reset": str(whole_s)}, whole_s),
    )
    return forms[turn % len(forms)]


def trial(site, vendor, count, *, down_s, patience_s, env=None):
    """Let two supervisors serve jobs of both kinds, with the vendor down for a while.

    Returns the jobs as they have ended.
    """
    ids = [
        job_id
        for first, kind in enumerate(("starts", "asks"))
        for job_id in site.add_many(
            kind,
            [{"url": vendor.url, "number": n} for n in range(first, count, 2)],
            pool="io",
        )
    ]
    for _ in range(2):
        site.start("io=8", env=env)
    wait_until(
        lambda: len(vendor.ledger) >= count / 4, patience_s, "a quarter of the requests"
    )
    vendor.go_down()
    threading.Event().wait(down_s)  # the outage itself, not a wait for something
    vendor.come_up()
    return site.finish_all(ids, patience_s)
