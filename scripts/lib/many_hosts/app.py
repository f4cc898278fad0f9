"""One handler that writes down when it lived, for `many_hosts` to compare."""

from __future__ import annotations

import os
import time

from jobpool import JobPool, current

MARKS = os.environ["MANY_HOSTS_MARKS"]
HOST = os.environ.get("MANY_HOSTS_HOST", "producer")
TICK_S = 0.02
jobs = JobPool()


def mark(what: str) -> None:
    """Append one line: what, job, token, host, and the time in milliseconds."""
    now = current()
    line = f"{what} {now.id} {now.token} {HOST} {time.time() * 1000:.0f}\n"
    fd = os.open(MARKS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


@jobs.job("cpu", kind="step", timeout="60s", max_attempts=100)
def step(number: int, lasts_ms: int) -> int:
    """Live for a while, with a sign of life every 20 ms."""
    mark("start")
    until_s = time.monotonic() + lasts_ms / 1000
    while time.monotonic() < until_s:
        time.sleep(TICK_S)
        mark("alive")
    mark("stop")
    return number
