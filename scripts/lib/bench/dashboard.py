"""The dashboard on a large table: how soon its pages come, and what they cost others.

Ten viewers, which are no browsers, ask for one page after another; their own CPU time
is told, since they are on the same machine. Then a supervisor drains jobs that do
nothing, with and without them, in pairs. On one machine with others at work p99 says as
much of these: read it beside what the dashboard takes of a core.
"""

from __future__ import annotations

import http
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from urllib.parse import urlsplit

import psutil

from bench.report import US, Sample
from bench.rows import multiply
from bench.running import fresh_database
from bench.scraped import Beside, rate_of
from bench.sections import Scale
from jobpool.core.clock import SystemClock
from jobpool.store.opening import open_store
from support.browser.chromium import browser
from support.browser.places import PAGES, address_of
from support.lively.fill import fill
from support.store.storing import ManualClock

ROWS, ROWS_QUICK = 10_000_000, 1_000_000
VIEWERS = 10
EVERY_S = 1.0
"""Each viewer asks for a page so often, or as soon as it has the last one."""
SECONDS, SECONDS_QUICK = 120.0, 30.0
SETTLE_S, IDLE_S = 10.0, 60.0
JOBS, JOBS_QUICK = 60_000, 15_000
PAIRS, PAIRS_QUICK = 5, 2
PATIENCE_S = 60.0
LATE = b"not known within"
FIRST_LOOKS = 10
LOADED_MS = "performance.getEntriesByType('navigation')[0].loadEventEnd"
"""When all was fetched and scripts have run: before that, nothing is slower."""
ON_POSTGRES = f"{US}-postgresql"
FILTERS = {
    "dead jobs": "/jobs?state=dead",
    "jobs of a kind": "/jobs?kind=pdf.render",
    "jobs of a tenant": "/jobs?tenant=tenant-7",
    "jobs by a word": "/jobs?text=declined",
}


def samples(scale: Scale, number: int) -> Iterator[Sample]:
    """Measure one round.

    Args:
        scale: how much.
        number: the round.
    """
    quick = scale.rounds == 1
    rows, seconds = (ROWS_QUICK, SECONDS_QUICK) if quick else (ROWS, SECONDS)
    if not number:  # to fill the tables takes minutes, and each page is asked for often
        yield from _on_both(rows, seconds)
    jobs, pairs = (JOBS_QUICK, PAIRS_QUICK) if quick else (JOBS, PAIRS)
    for pair in range(pairs):
        rates = {}
        spent: list[float] = []
        for watched in (True, False) if pair % 2 else (False, True):
            beside: Beside = partial(viewed, spent=spent) if watched else nullcontext
            rates[watched] = rate_of(jobs, "", beside)
        at, what = number * pairs + pair, f"no-op, {VIEWERS} viewers"
        ratio = rates[True] / rates[False]
        yield Sample("dashboard", f"{what}: over none", US, at, ratio)
        share = 100 * sum(spent)
        yield Sample("dashboard", f"{what}, dashboard: % of a core", US, at, share)


def _on_both(rows: int, seconds: float) -> Iterator[Sample]:
    """Measure pages on a large table of each database."""
    with tempfile.TemporaryDirectory(prefix="jobpool-bench-") as folder:
        places = {US: f"sqlite:///{folder}/jobs.db", ON_POSTGRES: fresh_database()}
        for system, url in places.items():
            fill_store(url, rows)
            for what, value in pages(url, seconds).items():
                yield Sample("dashboard", f"{rows:,} rows: {what}", system, 0, value)


def fill_store(url: str, rows: int) -> None:
    """Let a shop work for an hour, and add so many jobs to what it has left."""
    now_ms = SystemClock().utc_ms()
    clock = ManualClock(now_ms - 3_602_200)
    with closing(open_store(url, clock=clock)) as store:
        fill(store, clock)
    multiply(url, rows, now_ms)


def pages(url: str, seconds: float) -> dict[str, float]:
    """Return how long each page takes, and what that costs.

    Args:
        url: the store's.
        seconds: so long viewers look.
    """
    with closing(open_store(url, create=False)) as store:
        paths = {route.name: address_of(store, route) for route in PAGES} | FILTERS
    with served(url) as (site, process):
        first_ms = list(first_looks(site))
        stream = site.stream("/live")
        site.settle()
        began = _cpu_s(process)
        time.sleep(IDLE_S)
        idle = (_cpu_s(process) - began) / IDLE_S
        stream.close()
        began, own_began = _cpu_s(process), time.process_time()
        over = threading.Event()
        threading.Timer(seconds, over.set).start()
        took_s = site.look(paths, over)
        spent = (_cpu_s(process) - began) / seconds
        own = (time.process_time() - own_began) / seconds
    found = {
        "first page in a browser: p50 ms": statistics.median(first_ms),
        "one open page: % of a core": 100 * idle,
        "dashboard: % of a core": 100 * spent,
        "viewers: % of a core": 100 * own,
        "pages/s": sum(map(len, took_s.values())) / seconds,
    }
    for name, answers in took_s.items():
        times = [took for took, _ in answers]
        found[f"{name}: p50 ms"] = 1000 * statistics.median(times)
        found[f"{name}: p99 ms"] = 1000 * sorted(times)[int(len(times) * 0.99)]
        found[f"{name}: % partial"] = (
            100 * sum(late for _, late in answers) / len(times)
        )
    return found


def first_looks(site: Site) -> Iterator[float]:
    """Open the first page in a browser that has nothing of ours; yield when it is."""
    with browser() as found:
        for _ in range(FIRST_LOOKS):
            context = found.new_context(extra_http_headers=site.headers)
            page = context.new_page()
            answer = page.goto(f"{site.url}/", wait_until="load")
            if answer is None or not answer.ok:
                raise RuntimeError("a browser was not let in: the figure says nothing")
            page.wait_for_function(f"{LOADED_MS} > 0")
            yield page.evaluate(LOADED_MS)
            context.close()


class Site:
    """A dashboard that listens, and those who look at it.

    Args:
        link: that opens it.
    """

    def __init__(self, link: str) -> None:
        self._at = urlsplit(link).netloc
        self.url = f"http://{self._at}"
        self.headers: dict[str, str] = {}
        answer, _ = self.get(link.partition(self._at)[2])
        self.headers["Cookie"] = answer.headers["Set-Cookie"].partition(";")[0]

    def get(self, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        """Ask for a page."""
        connection = http.client.HTTPConnection(self._at, timeout=PATIENCE_S)
        with closing(connection):
            connection.request("GET", path, headers=self.headers)
            answer = connection.getresponse()
            return answer, answer.read()

    def settle(self) -> None:
        """Wait until the first page is whole: what is read first is read once."""
        until_s = time.monotonic() + PATIENCE_S
        while LATE in self.get("/")[1]:
            if time.monotonic() > until_s:
                raise RuntimeError(f"the first page is partial after {PATIENCE_S:g} s")
            time.sleep(EVERY_S)
        time.sleep(SETTLE_S)

    def stream(self, path: str) -> http.client.HTTPConnection:
        """Open what keeps a page fresh; whoever closes it has looked enough."""
        connection = http.client.HTTPConnection(self._at, timeout=PATIENCE_S)
        connection.request("GET", path, headers=self.headers)
        if connection.getresponse().status != http.HTTPStatus.OK:
            raise RuntimeError("no page could be kept fresh: the figure says nothing")
        return connection

    def look(
        self, paths: Mapping[str, str], over: threading.Event
    ) -> dict[str, list[tuple[float, bool]]]:
        """Let viewers look; return what each page took, and whether all was known.

        Args:
            paths: of the pages, by their names.
            over: set once they have looked enough.
        """
        took_s: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
        names = sorted(paths)
        wrong: list[str] = []

        def view(viewer: int) -> None:
            turn = viewer * len(names) // VIEWERS
            over.wait(viewer * EVERY_S / VIEWERS)
            while not over.is_set():
                name = names[turn % len(names)]
                turn += 1
                began_s = time.monotonic()
                answer, body = self.get(paths[name])
                spent_s = time.monotonic() - began_s
                if answer.status != http.HTTPStatus.OK:
                    wrong.append(f"{name}: {answer.status}")
                    return
                took_s[name].append((spent_s, LATE in body))
                over.wait(max(0.0, EVERY_S - spent_s))

        viewers = [threading.Thread(target=view, args=(n,)) for n in range(VIEWERS)]
        for viewer in viewers:
            viewer.start()
        for viewer in viewers:
            viewer.join()
        if wrong:
            raise RuntimeError(f"pages were not shown: {', '.join(wrong)}")
        return took_s


@contextmanager
def served(url: str) -> Iterator[tuple[Site, psutil.Process]]:
    """Serve a store's dashboard as anybody would."""
    words = ("dashboard", "--store", url, "--listen", "127.0.0.1:0")
    env = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")}
    with subprocess.Popen(
        [sys.executable, "-m", "jobpool", *words],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            link = process.stdout.readline().strip() if process.stdout else ""
            yield Site(link), psutil.Process(process.pid)
        finally:
            process.terminate()


@contextmanager
def viewed(url: str, spent: list[float]) -> Iterator[None]:
    """Let viewers look at the overview and the jobs of a store meanwhile.

    Args:
        url: the store's.
        spent: gets what that takes of a core, theirs and the dashboard's together.
    """
    over = threading.Event()
    with served(url) as (site, process), ThreadPoolExecutor(1) as viewing:
        paths = {"overview": "/", "jobs": "/jobs"}
        began_s = time.monotonic()
        before_s = _cpu_s(process) + time.process_time()
        looks = viewing.submit(site.look, paths, over)
        try:
            yield
        finally:
            over.set()
        looks.result()
        cpu_s = _cpu_s(process) + time.process_time() - before_s
        spent.append(cpu_s / (time.monotonic() - began_s))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
