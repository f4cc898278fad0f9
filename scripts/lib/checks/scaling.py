"""Moves one signal at a time, and shows what real pools of each sort do about it.

Each run has a pool of 1 to 4 children, a dozen jobs that wait, and one thing that is
scarce. It prints how large the pool became, after how long, and why it did not grow.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import psutil

from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
@jobs.job("io", kind="hold", max_attempts=1)
def wait_at(gate: str):
    hold(gate)


@jobs.job("io", kind="quick", max_attempts=1)
def quick():
    pass


@jobs.job("io", kind="held", max_attempts=1)
def wait_too(gate: str):
    hold(gate)
"""
CONFIG = """
memory_budget = "none"

[pools.io]
memory = "{memory}"
scale_on = "{scale_on}"
age_target = "3s"

[kinds.held]
concurrency = 1
"""
LARGEST = 4
WATCHED_S = 12.0
ATTEMPTS = 60
"""So many small ones show what the kind needs."""
SKETCHED_S = 100.0
"""What attempts use is written and read within this time."""


class Run(NamedTuple):
    """One signal, and a pool that follows it or does not."""

    signal: str
    scale_on: str
    grows: bool
    kind: str = "hold"
    busy: bool = False
    """Processors are kept busy by others."""
    large: bool = False
    """A child may use more memory than is free."""
    sketched: bool = False
    """Attempts have shown how little they use."""


RUNS = (
    Run("cpu", "cpu", grows=False, busy=True),
    Run("cpu", "backlog", grows=True, busy=True),
    Run("backlog", "backlog", grows=True),
    Run("held by a quota", "backlog", grows=False, kind="held"),
    Run("age", "age", grows=True, busy=True),
    Run("memory", "backlog", grows=False, large=True),
    Run("memory", "memory", grows=False, large=True),
    Run("memory", "memory", grows=True, large=True, sketched=True),
)


@contextmanager
def busy_processors() -> Iterator[None]:
    """Keep every processor busy meanwhile."""
    spin = (sys.executable, "-c", "while True: pass")
    spinning = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def trial(run: Run) -> tuple[int, float | None, str]:
    """Return how large the pool became, after how many seconds, and what it says."""
    memory = f"{psutil.virtual_memory().total // 2**20}MiB"
    config = CONFIG.format(
        scale_on=run.scale_on, memory=memory if run.large else "64MiB"
    )
    with tempfile.TemporaryDirectory() as directory:
        site = Site(directory, APP, config=config)
        with site, busy_processors() if run.busy else nullcontext():
            supervisor: Any = site.start(f"io=1..{LARGEST}")
            if run.sketched:
                ids = site.add_many("quick", [{}] * ATTEMPTS, pool="io")
                site.finish_all(ids)
                sketched_s = time.monotonic() + SKETCHED_S
                wait_until(
                    lambda: time.monotonic() >= sketched_s,
                    SKETCHED_S + PATIENCE_S,
                    "the attempts' figures",
                )
            began_ms = time.time() * 1000
            site.add_many(run.kind, [{"gate": "open"}] * 12, pool="io")
            until_s = time.monotonic() + WATCHED_S

            def largest() -> int:
                sizes = [e["size_to"] for e in supervisor.events("pool_resized")]
                return max(sizes, default=1)

            wait_until(
                lambda: largest() == LARGEST or time.monotonic() >= until_s,
                WATCHED_S + PATIENCE_S,
                "the pool's size",
            )
            now_s = (time.time() * 1000 - began_ms) / 1000

            def told() -> str:
                """Return what it reports of the size that the pool has."""
                rows = site.store.run_reports()
                pool = rows[0].report.pools["io"] if rows else None
                is_new = pool is not None and pool.busy and pool.size == largest()
                return pool.why if is_new else ""

            why = wait_until(told, PATIENCE_S, "a report of its size")
            return largest(), now_s if largest() > 1 else None, why


def main(given: Sequence[str] | None = None) -> int:
    """Make the runs; return 0 only if every pool did as it should."""
    parser = argparse.ArgumentParser(prog="scripts/scaling", description=__doc__)
    parser.add_argument("--only", help="runs of pools that follow this")
    only = parser.parse_args(given).only
    wrong = 0
    print(f"{'moves':<16} {'follows':<8} {'size':>4} {'after':>7}  as reported")
    for run in RUNS:
        if only not in {None, run.scale_on}:
            continue
        size, after_s, why = trial(run)
        is_right = (size == LARGEST) if run.grows else (size == 1)
        wrong += not is_right
        after = "-" if after_s is None else f"{after_s:.1f} s"
        mark = "" if is_right else "  WRONG"
        print(
            f"{run.signal:<16} {run.scale_on:<8} {size:>4} {after:>7}  {why}{mark}",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
