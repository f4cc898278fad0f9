"""What being watched costs: a supervisor that is scraped each second, and one without.

Pairs alternate. Each drains the same jobs, which do nothing; its rate is that between
the tenth and the ninetieth hundredth of the ends, so that a start does not count.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path

from bench.report import US, Sample
from bench.sections import Scale
from jobpool import JobPool

Beside = Callable[[str], AbstractContextManager[None]]
JOBS, JOBS_QUICK = 60_000, 15_000
PAIRS, PAIRS_QUICK = 20, 3
SCRAPE_EVERY_S = 1.0
PATIENCE_S = 300.0
APP = """
from jobpool import JobPool

jobs = JobPool()


@jobs.job("cpu", kind="nothing")
def nothing() -> None: ...
"""


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
        for watched in (True, False) if pair % 2 else (False, True):
            port = _free_port() if watched else None
            config = f'[metrics]\nlisten = "127.0.0.1:{port}"\n' if watched else ""
            with _scraped(port) as scrapes:
                rates[watched] = rate_of(jobs, config)
            if watched and not scrapes:
                raise RuntimeError("nothing was scraped: the figure would say nothing")
        at = number * pairs + pair
        ratio = rates[True] / rates[False]
        yield Sample("metrics", "no-op, scraped each second: over not", US, at, ratio)


def rate_of(count: int, config: str, beside: Beside = nullcontext) -> float:
    """Return jobs a second of a supervisor that drains a store.

    Args:
        count: of jobs that do nothing.
        config: its configuration.
        beside: what goes on meanwhile; given the store's URL.
    """
    with tempfile.TemporaryDirectory(prefix="jobpool-bench-") as name:
        folder = Path(name)
        (folder / "jobs.py").write_text(APP)
        (folder / "jobpool.toml").write_text(config)
        url = f"sqlite:///{folder}/jobpool.db"
        with closing(JobPool(url)) as pool:
            nothing = pool.job("cpu", kind="nothing")(_nothing)
            pool.enqueue_many(nothing.call() for _ in range(count))
        words = [*(sys.executable, "-m", "jobpool", "--pools", "cpu=2", "--burst")]
        env = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")}
        with beside(url):
            subprocess.run(
                [*words, "--store", url, "--log-level", "error"],
                cwd=folder,
                env=env,
                check=True,
                timeout=PATIENCE_S,
            )
        return _steady(folder / "jobpool.db", count)


def _nothing() -> None:
    """Do nothing."""


def _steady(path: Path, count: int) -> float:
    """Return ends a second between a tenth and nine tenths of them."""
    with closing(sqlite3.connect(path)) as database:
        ends = [
            at_ms
            for (at_ms,) in database.execute(
                "SELECT finished_at_ms FROM jobpool_jobs WHERE state = 'succeeded' "
                "ORDER BY finished_at_ms"
            )
        ]
    if len(ends) != count:
        raise RuntimeError(f"{len(ends)} of {count} jobs have succeeded")
    first, last = count // 10, count * 9 // 10
    return 1000.0 * (last - first) / max(1, ends[last] - ends[first])


@contextmanager
def _scraped(port: int | None) -> Iterator[list[int]]:
    """Scrape each second; yield how many bytes each answer had."""
    scrapes: list[int] = []
    over = threading.Event()

    def scrape() -> None:
        url = f"http://127.0.0.1:{port}/metrics"
        while not over.wait(SCRAPE_EVERY_S):
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    scrapes.append(len(answer.read()))
            except (urllib.error.URLError, TimeoutError):
                continue  # it starts, or has ended

    thread = threading.Thread(target=scrape, daemon=True)
    if port is not None:
        thread.start()
    try:
        yield scrapes
    finally:
        over.set()
        if port is not None:
            thread.join()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port
