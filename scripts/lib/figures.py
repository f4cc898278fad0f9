"""Measures what jobpool promises in figures, on this machine, with real processes.

Every figure is taken from what handlers and the kernel recorded, not from what the
supervisor believes: handlers write CLOCK_MONOTONIC to a file, the store has the
kernel's own figures for memory. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

APP = Path(__file__).with_name("figures_app.py")
MIB = 2**20
KINDS_OF_HANG = ("busy", "gil", "deaf", "stopped")


def main() -> None:
    """Measure the sections that were asked for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kills of each kind")
    parser.add_argument("--jobs", type=int, default=30_000, help="no-op jobs")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds of idling")
    parser.add_argument("--only", choices=sorted(SECTIONS), action="append")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found: dict[str, object] = {}
    for name in options.only or SECTIONS:
        if not options.json:
            print(f"measuring {name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="jobpool-figures-") as directory:
            found |= SECTIONS[name](Path(directory), options)
    if options.json:
        print(json.dumps(found))
        return
    for what, figure in found.items():
        print(f"{what:<58} {figure}")


def kill_lateness(directory: Path, options: argparse.Namespace) -> dict[str, object]:
    """How long after its hard limit an attempt was over, process tree and all."""
    found: dict[str, object] = {}
    with application(directory) as app, supervisor(directory, "cpu=2"):
        app.warm()
        for kind in KINDS_OF_HANG:
            app.enqueue(kind, options.kills)
            rows = app.ended(kind, options.kills, timeout_s=5 + options.kills)
            late = [1000 * (row["duration_s"] - app.LIMIT_S) for row in rows]
            outcomes = {row["outcome"] for row in rows}
            check(outcomes == {"timed_out"}, f"{kind}: {outcomes}")
            found[f"kill lateness, {kind}: p50 / p99 / max ms"] = spread(late)
    return found


def memory_overshoot(directory: Path, options: argparse.Namespace) -> dict[str, object]:
    """The kernel's peak of a full-speed allocator under a limit of 256 MiB."""
    found: dict[str, object] = {}
    count = max(10, options.kills // 5)
    with application(directory) as app, supervisor(directory, "cpu=1"):
        app.warm()
        for kind in ("hog_small", "hog_large"):
            app.enqueue(kind, count)
            rows = app.ended(kind, count, timeout_s=120)
            outcomes = {row["outcome"] for row in rows}
            check(outcomes == {"out_of_memory"}, f"{kind}: {outcomes}")
            over = [100 * (row["peak_rss_bytes"] / (256 * MIB) - 1) for row in rows]
            found[f"memory over a 256 MiB limit, {kind}: p50 / p99 / max %"] = spread(
                over
            )
    return found


def slot_recovery(directory: Path, options: argparse.Namespace) -> dict[str, object]:
    """From a segfault to the start of the next job in the same slot."""
    with application(directory) as app, supervisor(directory, "cpu=1"):
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


def pick_up(directory: Path, options: argparse.Namespace) -> dict[str, object]:
    """From the call of enqueue() in another process to the handler's first line."""
    asked: list[float] = []
    with application(directory) as app, supervisor(directory, "cpu=2"):
        app.warm()
        for _ in range(3 * options.kills):
            time.sleep(0.02)
            asked.append(time.monotonic())
            app.enqueue("stamp", 1)
        app.ended("stamp", len(asked), timeout_s=60)
        started = [at for what, at in app.stamps() if what == "stamp"]
    delays = [1000 * (b - a) for a, b in zip(asked, started, strict=True)]
    return {"pick-up, idle: p50 / p99 / max ms": spread(delays)}


def throughput(directory: Path, options: argparse.Namespace) -> dict[str, object]:
    """No-op jobs a second, durable, through two children."""
    with application(directory) as app:
        began = time.monotonic()
        app.enqueue("noop", options.jobs)
        enqueued = options.jobs / (time.monotonic() - began)
        with supervisor(directory, "cpu=2"):
            rows = app.span("noop", options.jobs, timeout_s=300)
    return {
        "bulk enqueue: jobs/s": round(enqueued),
        "no-op jobs, 2 children, durable: jobs/s": round(options.jobs / rows),
    }


def idle_cost(directory: Path, options: argparse.Namespace) -> dict[str, object]:
    """The supervisor's own CPU while nothing is to be done."""
    with application(directory) as app, supervisor(directory, "cpu=4,io=16") as process:
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


SECTIONS: dict[str, Callable[[Path, argparse.Namespace], dict[str, object]]] = {
    "kills": kill_lateness,
    "memory": memory_overshoot,
    "recovery": slot_recovery,
    "pick-up": pick_up,
    "throughput": throughput,
    "idle": idle_cost,
}


class Application:
    """The figures' handlers, seen from the enqueuing side."""

    def __init__(self, directory: Path) -> None:
        os.environ["FIGURES_DIRECTORY"] = str(directory)
        os.environ["JOBPOOL_STORE"] = f"sqlite:///{directory / 'jobs.db'}"
        sys.modules.pop("figures_app", None)
        sys.path.insert(0, str(APP.parent))
        import figures_app  # noqa: PLC0415 - reads the environment that was just set

        self._app = figures_app
        self._directory = directory
        self.LIMIT_S: float = figures_app.LIMIT_S
        self._store = f"sqlite:///{directory / 'jobs.db'}"

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

    def rows(self, sql: str, *parameters: object) -> list[dict[str, object]]:
        """Read the store as an operator would."""
        import sqlite3  # noqa: PLC0415 - beside the library, for reading only

        connection = sqlite3.connect(self._directory / "jobs.db")
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(sql, parameters)]
        finally:
            connection.close()

    def ended(self, kind: str, count: int, timeout_s: float) -> list[dict[str, object]]:
        """Wait until *count* jobs of a kind have ended; return their figures."""
        until = time.monotonic() + timeout_s
        while True:
            rows = self.rows(
                "SELECT outcome, duration_s, peak_rss_bytes FROM jobpool_jobs "
                "WHERE kind = ? AND finished_at_ms IS NOT NULL",
                kind,
            )
            if len(rows) >= count:
                return rows
            check(time.monotonic() < until, f"{len(rows)} of {count} {kind} ended")
            time.sleep(0.05)

    def span(self, kind: str, count: int, timeout_s: float) -> float:
        """Return the seconds from the first end to the last."""
        self.ended(kind, count, timeout_s)
        (row,) = self.rows(
            "SELECT (max(finished_at_ms) - min(finished_at_ms)) / 1000.0 AS span "
            "FROM jobpool_jobs WHERE kind = ?",
            kind,
        )
        return float(row["span"])  # type: ignore[arg-type]

    def stamps(self) -> list[tuple[str, float]]:
        """Return what the handlers noted, in order of time."""
        lines = (self._directory / "stamps").read_text().splitlines()
        marks = [(name, float(at)) for name, at in map(str.split, lines)]
        return sorted(marks, key=lambda mark: mark[1])


@contextmanager
def application(directory: Path) -> Iterator[Application]:
    """Import the figures' handlers against a fresh store."""
    app = Application(directory)
    try:
        yield app
    finally:
        sys.path.remove(str(APP.parent))


@contextmanager
def supervisor(directory: Path, pools: str) -> Iterator[subprocess.Popen[bytes]]:
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
                str(APP),
                "--log-level",
                "error",
            ],
            cwd=directory,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(30)


def spread(values: list[float]) -> str:
    """Write median, 99th percentile and maximum."""
    ranked = sorted(values)
    p99 = ranked[math.ceil(0.99 * len(ranked)) - 1]  # nearest rank
    return f"{statistics.median(ranked):.2f} / {p99:.2f} / {ranked[-1]:.2f}"


def check(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as assert
    """End with a message when something is not as it must be."""
    if not holds:
        sys.exit(f"figures: {otherwise}")


if __name__ == "__main__":
    main()
