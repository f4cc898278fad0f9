"""Small jobs, and noisy ones beside them, for `figures neighbours`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from jobpool import JobPool

DIRECTORY = os.environ["FIGURES_DIRECTORY"]
MIB = 2**20
RESULT = "x" * (MIB - 2)
"""At the cap of results, with its quotes."""
LINE = "x" * 1023
"""And its end of line."""
STEPS = 1000
jobs = JobPool()


def note(name: str) -> None:
    """Append a name and the monotonic time to the witness file."""
    fd = os.open(f"{DIRECTORY}/stamps", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{name} {time.monotonic()!r}\n".encode())
    os.close(fd)


@jobs.job("small", kind="small")
def small(number: int) -> None:
    """Note that it began, and do nothing else."""
    note(str(number))


@jobs.job("noisy", kind="results")
def results(pause_s: float) -> str:
    """Return as much as is kept."""
    time.sleep(pause_s)
    return RESULT


@jobs.job("noisy", kind="results.bare")
def results_bare(pause_s: float) -> None:
    """Write as much to the disk as `results` does, without jobpool."""
    time.sleep(pause_s)
    fd = os.open(f"{DIRECTORY}/bare", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, RESULT.encode())
    os.fdatasync(fd)
    os.close(fd)


@jobs.job("noisy", kind="prints", timeout="60s", max_attempts=1)
def prints(lasts_s: float, size_bytes: int) -> None:
    """Print lines evenly over some time."""

    def step() -> None:
        for _ in range(size_bytes // STEPS // (len(LINE) + 1)):
            print(LINE)

    evenly(step, lasts_s)


@jobs.job("noisy", kind="prints.bare", timeout="60s", max_attempts=1)
def prints_bare(lasts_s: float, size_bytes: int, cpu_s: float) -> None:
    """Print as much to /dev/null, and use as much processor time."""
    with open(os.devnull, "w", buffering=1, encoding="utf-8") as nowhere:  # noqa: PTH123
        evenly(lambda: _print_to(nowhere, size_bytes // STEPS), lasts_s, cpu_s)


def evenly(step: Callable[[], None], lasts_s: float, cpu_s: float = 0.0) -> None:
    """Make steps evenly over some time, and use that much processor time if given."""
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    for done in range(1, STEPS + 1):
        step()
        share = done / STEPS
        while time.process_time() - began_cpu_s < share * cpu_s:
            pass
        time.sleep(max(0.0, began_s + share * lasts_s - time.monotonic()))


def _print_to(stream: TextIO, size_bytes: int) -> None:
    for _ in range(size_bytes // (len(LINE) + 1)):
        print(LINE, file=stream)
