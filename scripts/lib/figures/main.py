"""Measures what jobpool promises in figures, on this machine, with real processes.

Every figure is taken from what handlers and the kernel recorded, not from what the
supervisor believes: handlers write CLOCK_MONOTONIC to a file, the store has the
kernel's own figures for memory. Run it on an otherwise idle machine. PostgreSQL is a
server of its own that commits to the disk, or the one that JOBPOOL_TEST_POSTGRES names.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import math
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

APP = Path(__file__).with_name("app.py")
MIB = 2**20
PICK_UP_EVERY_S = 0.1
"""No store's limit on wake-ups is met, and the supervisor is idle again."""


class Ground(NamedTuple):
    """Where a section measures."""

    directory: Path
    """Empty, and gone after the section."""
    fresh_store: Callable[[Path], AbstractContextManager[str]]
    """Makes an empty store, perhaps in that directory; yields its URL."""
    read: Callable[[str, str, str], list[dict[str, object]]]
    """Takes a store's URL, a query and a kind: see `Application.rows`."""


Section = Callable[[Ground, argparse.Namespace], dict[str, object]]


def main() -> None:
    """Measure the sections that were asked for and print a table."""
    from figures import (  # noqa: PLC0415 - they import this module
        children,
        deaths,
        executor,
        limits,
        neighbours,
        postgres,
        postgres_store,
    )

    on_sqlite: dict[str, Section] = {
        "kills": limits.kill_lateness,
        "kills-busy": limits.kill_lateness_busy,
        "memory": limits.memory_overshoot,
        "recovery": slot_recovery,
        "pick-up": pick_up,
        "throughput": throughput,
        "idle": idle_cost,
        "deaths": deaths.mixed_deaths,
        "executor": executor.throughput,
        "children": children.cost,
        "neighbours": neighbours.slowed,
    }
    stores = {
        "sqlite": (on_sqlite, sqlite_store, read_sqlite),
        "postgresql": (postgres.SECTIONS, postgres_store.fresh_store, postgres.read),
    }
    options = arguments({store: parts[0] for store, parts in stores.items()})
    sections, fresh_store, read = stores[options.store]
    found: dict[str, object] = {}
    for name in options.only or sections:
        if not options.json:
            print(f"measuring {name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="jobpool-figures-") as directory:
            ground = Ground(Path(directory), fresh_store, read)
            found |= sections[name](ground, options)
    if options.json:
        print(json.dumps(found))
        return
    for what, figure in found.items():
        print(f"{what:<58} {figure}")


def arguments(sections: dict[str, dict[str, Section]]) -> argparse.Namespace:
    """Read the command line, given the sections of each store."""
    parser = argparse.ArgumentParser(
        prog="scripts/figures",
        description=__doc__,
        epilog="Sections: "
        + "; ".join(f"{store}: {', '.join(of)}" for store, of in sections.items()),
    )
    parser.add_argument("--store", choices=sections, default="sqlite")
    parser.add_argument("--only", metavar="SECTION", action="append", help="see below")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--kills", type=int, default=100, help="kills of each kind, hogs of each kind"
    )
    parser.add_argument("--jobs", type=int, default=30_000, help="no-op jobs")
    parser.add_argument(
        "--rounds", type=int, default=5, help="of the executors, and of neighbours"
    )
    parser.add_argument(
        "--submits", type=int, default=10_000, help="calls in a round of the executors"
    )
    parser.add_argument("--idle", type=float, default=10.0, help="seconds of idling")
    parser.add_argument("--deaths", type=int, default=1000, help="mixed deaths")
    group = parser.add_argument_group("PostgreSQL only")
    group.add_argument(
        "--cycle", type=int, default=50_000, help="jobs in a round of the cycle"
    )
    group.add_argument("--calls", type=int, default=2000, help="single enqueues")
    group.add_argument(
        "--rows", type=int, default=1_000_000, help="backlog, and finished jobs"
    )
    group.add_argument(
        "--hold", type=float, default=75.0, help="seconds of an idle transaction"
    )
    options = parser.parse_args()
    if unknown := set(options.only or ()) - set(sections[options.store]):
        parser.error(
            f"--only: {options.store} has no section {', '.join(sorted(unknown))}; "
            f"it has {', '.join(sections[options.store])}"
        )
    return options


def slot_recovery(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """From a segfault to the start of the next job in the same slot."""
    with application(ground) as app, supervisor(ground.directory, "cpu=1"):
        app.warm()
        for _ in range(options.kills):
            app.enqueue("crash", 1)
            app.enqueue("stamp", 1)
        app.ended("stamp", options.kills, timeout_s=120)
        marks = app.stamps()
    gaps = [
        1000 * (after - before)
        for (what, before), (then, after) in itertools.pairwise(marks)
        if (what, then) == ("crash", "stamp")
    ]
    check(len(gaps) >= options.kills // 2, f"only {len(gaps)} crashes were followed")
    return {"child death to the slot working: p50 / p99 / max ms": spread(gaps)}


def pick_up(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """From the call of enqueue() in another process to the handler's first line."""
    asked: list[float] = []
    with application(ground) as app, supervisor(ground.directory, "cpu=2"):
        app.warm()
        for _ in range(3 * options.kills):
            time.sleep(PICK_UP_EVERY_S)
            asked.append(time.monotonic())
            app.enqueue("stamp", 1)
        app.ended("stamp", len(asked), timeout_s=60)
        started = [at for what, at in app.stamps() if what == "stamp"]
    delays = [1000 * (b - a) for a, b in zip(asked, started, strict=True)]
    return {"pick-up, idle: p50 / p99 / max ms": spread(delays)}


def throughput(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """No-op jobs a second, durable, through two children."""
    with application(ground) as app:
        began = time.monotonic()
        app.enqueue("noop", options.jobs)
        enqueued = options.jobs / (time.monotonic() - began)
        with supervisor(ground.directory, "cpu=2"):
            span_s = app.span_s("noop", options.jobs, timeout_s=300)
    return {
        "bulk enqueue: jobs/s": round(enqueued),
        "no-op jobs, 2 children, durable: jobs/s": round(options.jobs / span_s),
    }


def idle_cost(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """The supervisor's own CPU while nothing is to be done."""
    with (
        application(ground) as app,
        supervisor(ground.directory, "cpu=4,io=16") as process,
    ):
        app.warm()
        time.sleep(2.0)
        watched = psutil.Process(process.pid)
        before = sum(watched.cpu_times()[:2])
        time.sleep(options.idle)
        spent = sum(watched.cpu_times()[:2]) - before
        rss = watched.memory_info().rss
    return {
        "idle supervisor with 20 slots: % of a core": round(
            100 * spent / options.idle, 2
        ),
        "idle supervisor: RSS MiB": round(rss / MIB, 1),
    }


class Application:
    """The figures' handlers, seen from the enqueuing side."""

    def __init__(self, ground: Ground, url: str) -> None:
        os.environ["FIGURES_DIRECTORY"] = str(ground.directory)
        os.environ["JOBPOOL_STORE"] = url
        os.environ["JOBPOOL_RUN_DIR"] = str(ground.directory / "run")
        sys.modules.pop("figures.app", None)
        # It reads the environment that was just set.
        self._app = importlib.import_module("figures.app")
        self._ground = ground
        self._url = url
        self.LIMIT_S: float = self._app.LIMIT_S

    def close(self) -> None:
        """Give the connection to the store back."""
        self._app.jobs.close()

    def enqueue(self, kind: str, count: int) -> None:
        """Enqueue *count* jobs of a kind."""
        handler = getattr(self._app, kind)
        if count == 1:
            handler.enqueue()
        else:
            self._app.jobs.enqueue_many(handler, ({} for _ in range(count)))

    def warm(self) -> None:
        """Wait until the supervisor has run a job."""
        self.enqueue("warm_up", 1)
        self.ended("warm_up", 1, timeout_s=30)

    def rows(self, sql: str, kind: str) -> list[dict[str, object]]:
        """Read the store as an operator would; {jobs} is the table, {kind} the kind."""
        return self._ground.read(self._url, sql, kind)

    def ended(self, kind: str, count: int, timeout_s: float) -> list[dict[str, object]]:
        """Wait until *count* jobs of a kind have ended; return their figures."""
        self._wait(kind, count, timeout_s, look_every_s=0.05)
        return self.rows(
            "SELECT outcome, duration_s, peak_rss_bytes FROM {jobs} "
            "WHERE kind = {kind} AND finished_at_ms IS NOT NULL",
            kind,
        )

    def span_s(self, kind: str, count: int, timeout_s: float) -> float:
        """Wait for *count* ends; return the seconds from the first to the last."""
        # Seldom: every look takes time from what is measured.
        self._wait(kind, count, timeout_s, look_every_s=0.5)
        (row,) = self.rows(
            "SELECT (max(finished_at_ms) - min(finished_at_ms)) AS span_ms "
            "FROM {jobs} WHERE kind = {kind}",
            kind,
        )
        return float(row["span_ms"]) / 1000  # type: ignore[arg-type]

    def _wait(
        self, kind: str, count: int, timeout_s: float, look_every_s: float
    ) -> None:
        until = time.monotonic() + timeout_s
        while True:
            (row,) = self.rows(
                "SELECT count(finished_at_ms) AS ended FROM {jobs} WHERE kind = {kind}",
                kind,
            )
            ended: int = row["ended"]  # type: ignore[assignment]
            if ended >= count:
                return
            check(time.monotonic() < until, f"{ended} of {count} {kind} ended")
            time.sleep(look_every_s)

    def stamps(self) -> list[tuple[str, float]]:
        """Return what the handlers noted, in order of time."""
        lines = (self._ground.directory / "stamps").read_text().splitlines()
        marks = [(name, float(at)) for name, at in map(str.split, lines)]
        return sorted(marks, key=lambda mark: mark[1])


@contextmanager
def application(ground: Ground) -> Iterator[Application]:
    """Import the figures' handlers against a fresh store."""
    with (
        ground.fresh_store(ground.directory) as url,
        closing(Application(ground, url)) as app,
    ):
        yield app


@contextmanager
def sqlite_store(directory: Path) -> Iterator[str]:
    """Name a database in a directory that is removed by others."""
    yield f"sqlite:///{directory / 'jobs.db'}"


def read_sqlite(url: str, sql: str, kind: str) -> list[dict[str, object]]:
    """Read a SQLite store beside the library."""
    query = sql.format(jobs="jobpool_jobs", kind=":kind")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query, {"kind": kind})]


@contextmanager
def supervisor(
    directory: Path, pools: str, app: Path = APP
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a real supervisor."""
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jobpool",
                "--pools",
                pools,
                "--app",
                str(app),
                "--log-level",
                "error",
            ],
            cwd=directory,
            stderr=log,
            # Kinds crash in a row here on purpose, and are not to be slowed for it.
            env={**os.environ, "JOBPOOL_BREAKER_AFTER": "0"},
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(30)


def spread(values: list[float]) -> str:
    """Write median, 99th percentile and maximum."""
    return f"{statistics.median(values):.2f} / {p99(values):.2f} / {max(values):.2f}"


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile, by nearest rank."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def check(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as assert
    """End with a message when something is not as it must be."""
    if not holds:
        sys.exit(f"figures: {otherwise}")
