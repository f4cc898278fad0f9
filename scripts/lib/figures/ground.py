"""What all sections of `scripts/figures` share: store, application, statistics."""

from __future__ import annotations

import argparse
import importlib
import math
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

APP = Path(__file__).with_name("app.py")
MIB = 2**20


class Ground(NamedTuple):
    """Where a section measures."""

    directory: Path
    """Empty; removed after the section."""
    fresh_store: Callable[[Path], AbstractContextManager[str]]
    """Creates an empty store, if need be in that directory; yields its URL."""
    read: Callable[[str, str, str], list[dict[str, object]]]
    """Takes a store's URL, a query and a kind: see `Application.rows`."""


Section = Callable[[Ground, argparse.Namespace], dict[str, object]]


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
        """Close the connection to the store."""
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
        self._wait(kind, count, timeout_s, poll_s=0.05)
        return self.rows(
            "SELECT outcome, duration_s, peak_rss_bytes FROM {jobs} "
            "WHERE kind = {kind} AND finished_at_ms IS NOT NULL",
            kind,
        )

    def span_s(self, kind: str, count: int, timeout_s: float) -> float:
        """Wait for *count* ends; return the seconds from the first to the last."""
        # Rarely: every check takes time from what is measured.
        self._wait(kind, count, timeout_s, poll_s=0.5)
        (row,) = self.rows(
            "SELECT (max(finished_at_ms) - min(finished_at_ms)) AS span_ms "
            "FROM {jobs} WHERE kind = {kind}",
            kind,
        )
        return float(row["span_ms"]) / 1000  # type: ignore[arg-type]

    def _wait(self, kind: str, count: int, timeout_s: float, poll_s: float) -> None:
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
            time.sleep(poll_s)

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
    """Yield the URL of a database in a directory; removes nothing."""
    yield f"sqlite:///{directory / 'jobs.db'}"


def read_sqlite(url: str, sql: str, kind: str) -> list[dict[str, object]]:
    """Read a SQLite store directly."""
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
            # Kinds crash in a row here on purpose, and must not be slowed down for it.
            env={**os.environ, "JOBPOOL_BREAKER_AFTER": "0"},
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(30)


def spread(values: list[float]) -> str:
    """Format median, 99th percentile and maximum."""
    return f"{statistics.median(values):.2f} / {p99(values):.2f} / {max(values):.2f}"


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile, by nearest rank."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def check(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as assert
    """Exit with a message if a condition does not hold."""
    if not holds:
        sys.exit(f"figures: {otherwise}")
