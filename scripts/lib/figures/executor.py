"""Calls per second of `jobpool.Executor` beside other executors, in one run.

Two workers each, in alternating rounds, so that noise of the machine meets all.
Others are measured where they are installed: ``pip install pebble loky``.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from figures.ground import Ground, check
from jobpool import Executor

WORKERS = 2
WARM_CALLS = 500
"""Warm-up calls, after which every pool has its processes and knows the function."""
Open = Callable[[], AbstractContextManager[Any]]


def throughput(_ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """Submit no-op calls one by one, then take their results."""
    pools = {"jobpool.Executor": lambda: Executor(WORKERS), **_others()}
    rates: dict[str, list[float]] = {name: [] for name in pools}
    for _ in range(options.rounds):
        for name, open_pool in pools.items():
            rates[name].append(_rate(open_pool, options.submits))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    ours = medians.pop("jobpool.Executor")
    found: dict[str, object] = {
        f"no-op calls/s, {WORKERS} workers: jobpool.Executor": round(ours)
    }
    for name, theirs in medians.items():
        found[f"the same: {name}"] = f"{theirs:.0f} (ours: {ours / theirs:.2f} times)"
    return found


def _others() -> dict[str, Open]:
    """Return the installed executors, with the standard library's."""
    found: dict[str, Open] = {
        "ProcessPoolExecutor": lambda: ProcessPoolExecutor(WORKERS)
    }
    for module, name in (("pebble", "ProcessPool"), ("loky", "ProcessPoolExecutor")):
        try:
            pool = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError:
            continue
        found[module] = lambda pool=pool: pool(max_workers=WORKERS)
    return found


def _rate(open_pool: Open, calls: int) -> float:
    with open_pool() as pool:
        # Pebble's `submit` needs a time limit; its `schedule` does not.
        schedule = getattr(pool, "schedule", None)
        submit = pool.submit if schedule is None else partial(_scheduled, schedule)
        _run(submit, WARM_CALLS)
        begun_s = time.perf_counter()
        _run(submit, calls)
        return calls / (time.perf_counter() - begun_s)


def _scheduled(schedule: Callable[..., Any], function: object, argument: int) -> Any:
    return schedule(function, args=(argument,))


def _run(submit: Callable[..., Any], calls: int) -> None:
    futures = [submit(abs, -n) for n in range(calls)]
    check(sum(f.result() for f in futures) == sum(range(calls)), "a result is wrong")
