"""How soon and how fast one supervisor works: recovery, pick-up, throughput, idling."""

from __future__ import annotations

import argparse
import itertools
import time

import psutil

from figures.ground import MIB, Ground, application, check, spread, supervisor

PICK_UP_EVERY_S = 0.1
"""Between jobs: the supervisor is idle again, and no limit on wake-ups is reached."""


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
    """Durable no-op jobs per second through two children."""
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
    """The supervisor's own CPU time while there are no jobs."""
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
