"""A service that fails for a while, as a real HTTP server that writes down requests."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from support.site.supervising import PATIENCE_S
from support.waiting import wait_until

PROBE_S = 0.5
"""The first answer that is good takes so long: who asks meanwhile is seen."""
SLOT_S = 5.0
"""Of the minute of a retry budget."""
APP = """
import urllib.error, urllib.request


def ask(url, number, told):
    try:
        with urllib.request.urlopen(f"{url}{number}/{current().attempt}") as answer:
            told(answer.status)
    except urllib.error.HTTPError as exc:
        told(exc.code)
        raise


frail = jobs.quota(
    "frail",
    breaker={"failures": 0.5, "window": "20s", "requests": 20, "pause": "3s"},
)
soon = {urllib.error.HTTPError: jobpool.Retry(["100ms"])}


@jobs.job("io", kind="starts", quotas=[frail], max_attempts=100, retry=soon)
def starts(url: str, number: int):
    ask(url, number, frail.answered)


@jobs.job("io", kind="asks", max_attempts=100, retry=soon)
def asks(url: str, number: int):
    with frail.permit() as permit:
        ask(url, number, permit.answered)


@jobs.job("io", kind="storms", retry=soon, retry_budget={budget!r})
def storms(url: str, number: int):
    ask(url, number, int)
"""


class Request(NamedTuple):
    """A request as the service saw it."""

    number: int
    attempt: int
    at_s: float
    good: bool


class Downstream:
    """The service: it listens always, and answers 500 while it is down."""

    def __init__(self):
        self.ledger = []
        self.is_up = False
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Answers)
        self._server.service = self
        threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        ).start()

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}/"

    def answer(self, number, attempt):
        """Write down a request, and return the status of its answer."""
        with self._lock:
            good = self.is_up
            is_probe = good and not any(one.good for one in self.ledger)
            self.ledger.append(Request(number, attempt, time.time(), good))
        if is_probe:
            time.sleep(PROBE_S)
        return 200 if good else 500

    def wait(self, wanted, count, patience_s=PATIENCE_S):
        """Wait until there were so many requests of which *wanted* is true."""
        wait_until(
            lambda: sum(map(wanted, list(self.ledger))) >= count,
            patience_s,
            f"{count} requests",
        )

    def retries_over(self, ratio, floor, slack_s):
        """Return the moments at which more retries came than a budget has.

        Args:
            ratio: of first attempts of a minute.
            floor: the least that a minute may have.
            slack_s: how long it may take from a begin to its request.
        """
        seen = list(self.ledger)
        firsts = [one.at_s for one in seen if one.attempt == 1]
        retries = [one.at_s for one in seen if one.attempt > 1]
        found = []
        for at_s in retries:
            since_s = at_s - 60.0 - SLOT_S - slack_s
            most = max(floor, ratio * sum(since_s < one <= at_s for one in firsts))
            minute = sum(at_s - 60.0 < one <= at_s for one in retries)
            # Two slots may meet in a time as long as one of them.
            recent = sum(at_s - SLOT_S + slack_s < one <= at_s for one in retries)
            if minute > most or recent > 2 * (most // 12 + 1):
                found.append((at_s, minute, recent, most))
        return found


class _Server(ThreadingHTTPServer):
    """Takes up many at once: whom it had no room for would come a second later."""

    request_queue_size = 128


class _Answers(BaseHTTPRequestHandler):
    """The answers of a `Downstream`."""

    def do_GET(self):
        _, number, attempt = self.path.split("/")
        self.send_response(self.server.service.answer(int(number), int(attempt)))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args):
        """Keep the output clean."""
