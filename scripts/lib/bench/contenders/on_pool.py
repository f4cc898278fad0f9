"""Executors, which keep jobs in memory only: Pebble, loky, the standard library's."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import rig

Schedule = Callable[[str, str], Future[None]]


class Pool(rig.Contender):
    """Jobs submitted before the workers start wait in a list."""

    schedule: Schedule | None = None

    def __init__(self, wish: dict[str, Any]) -> None:
        super().__init__(wish)
        self.waiting: list[tuple[str, str]] = []
        self.futures: list[Future[None]] = []

    def put(self, kind: str, argument: str) -> None:
        """Submit a call."""
        if self.schedule is None:
            self.waiting.append((kind, argument))
        else:
            self.futures.append(self.schedule(kind, argument))

    def work(self) -> None:
        """Make the pool and submit what waits."""
        self.schedule = OPEN[os.environ["BENCH_SYSTEM"]](self.workers, fresh=self.fresh)
        for kind, argument in self.waiting:
            self.put(kind, argument)


def open_pebble(workers: int, *, fresh: bool) -> Schedule:
    """Pebble: a time limit for each call."""
    import pebble  # noqa: PLC0415 - only where it is installed

    pool = pebble.ProcessPool(max_workers=workers, max_tasks=1 if fresh else 0)

    def schedule(kind: str, argument: str) -> Future[None]:
        limit_s = rig.HANG_LIMIT_S if kind == "hang" else 60
        return pool.schedule(rig.HANDLERS[kind], args=(argument,), timeout=limit_s)

    return schedule


def open_loky(workers: int, *, fresh: bool) -> Schedule:  # noqa: ARG001 - it cannot
    """Loky: processes that are reused."""
    import loky  # noqa: PLC0415 - only where it is installed

    pool = loky.ProcessPoolExecutor(max_workers=workers)
    return lambda kind, argument: pool.submit(rig.HANDLERS[kind], argument)


def open_executor(workers: int, *, fresh: bool) -> Schedule:
    """Open the standard library's."""
    options = (
        {"mp_context": get_context("forkserver"), "max_tasks_per_child": 1}
        if fresh
        else {}
    )
    pool = ProcessPoolExecutor(workers, **options)  # type: ignore[arg-type]
    return lambda kind, argument: pool.submit(rig.HANDLERS[kind], argument)


OPEN = {"pebble": open_pebble, "loky": open_loky, "executor": open_executor}


if __name__ == "__main__":
    rig.main(Pool)
