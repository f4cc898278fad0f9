"""Measures what a thousand mixed deaths leave behind: it should be nothing."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from figures.deaths_app import DEATHS, OUTCOMES
from figures.ground import Ground, check
from jobpool.core.jobs.job import FINISHED, NewJob
from jobpool.store.opening import open_store
from jobpool.store.protocol import Store
from support.site.census import Census, take_census

APP = Path(__file__).with_name("deaths_app.py")
MARKER = "JOBPOOL_FIGURES_DEATHS"
WARM = 275
"""Deaths before the first count, to fill caches and replace every slot."""
TOGETHER = 100
"""At most this many jobs wait at once: the queue itself must not grow."""
SETTLE_S = 0.5
SETTLES_MAX = 40
"""It is counted until two counts agree: on a busy machine children are long on their
way."""


def mixed_deaths(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """Count what the supervisor holds before and after many deaths."""
    with ground.fresh_store(ground.directory) as url:
        before, after, took_s = census_around(ground.directory, url, options.deaths)
    found: dict[str, object] = {
        f"left after {options.deaths} mixed deaths: {name}": getattr(after, name)
        - getattr(before, name)
        for name in Census._fields
    }
    found["mixed deaths: a second"] = round(options.deaths / took_s, 1)
    return found


def census_around(
    directory: Path, url: str, deaths: int, warm: int = WARM
) -> tuple[Census, Census, float]:
    """Let a supervisor's jobs die; return what it held before and after, and seconds.

    Args:
        directory: where it runs, with its temporary files.
        url: of the store.
        deaths: between the two counts.
        warm: deaths before the first count.
    """
    tmp = directory / "tmp"
    tmp.mkdir()
    with (
        closing(open_store(url)) as store,
        _supervisor(directory, url, tmp) as process,
    ):

        def count() -> Census:
            found = None
            for _ in range(SETTLES_MAX):
                time.sleep(SETTLE_S)
                last, found = found, take(process.pid)
                if last is not None and found._replace(rss_kib=last.rss_kib) == last:
                    break
            return found

        def take(pid: int) -> Census:
            return take_census(pid, f"{MARKER}={directory}", tmp)

        _die(store, warm)
        before = count()
        began_s = time.monotonic()
        _die(store, deaths)
        took_s = time.monotonic() - began_s
        return before, count(), took_s


@contextmanager
def _supervisor(
    directory: Path, url: str, tmp: Path
) -> Iterator[subprocess.Popen[bytes]]:
    words = ["--pools", "cpu=4", "--app", str(APP), "--store", url]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jobpool", *words, "--log-level", "error"],
            cwd=directory,
            env={**os.environ, MARKER: str(directory), "TMPDIR": str(tmp)},
            stderr=log,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(30)


def _die(store: Store, count: int) -> None:
    """Enqueue deaths, some at a time, and wait for them."""
    ways = itertools.islice(itertools.cycle(DEATHS), count)
    while some := list(itertools.islice(ways, TOGETHER)):
        kinds = [way.__name__ for way in some]
        made = store.enqueue([_job(kind) for kind in kinds])
        store.wake()
        for one, kind in zip(made, kinds, strict=True):
            outcome = _outcome(store, one.id)
            check(outcome == OUTCOMES[kind], f"{kind}: {outcome}")


def _job(way: str) -> NewJob:
    kind, arguments = ("death.late", {}) if way == "hang" else ("death", {"way": way})
    return NewJob(kind=kind, pool="cpu", payload=json.dumps(arguments).encode())


def _outcome(store: Store, job_id: int) -> str | None:
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        job = store.get(job_id)
        if job is not None and job.state in FINISHED:
            return job.outcome
        time.sleep(0.02)
    return f"job {job_id} has not ended"
