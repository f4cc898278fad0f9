"""The control of fresh children: processes that fork for every job, and nothing else.

Jobs are kept in memory and are counted, not stored. `parts` says what a fork costs that
has what a zygote has loaded: the call, the exit until it is reaped, the page tables of
more memory, and a zygote's own two forks.
"""

from __future__ import annotations

import importlib
import os
import statistics
import time
from collections.abc import Callable

import rig

MIB = 2**20
BALLAST_MIB = 256
PAGE_BYTES = 4096
ZYGOTE_HAS = ("jobpool.sandbox.zygote.zygote", "jobpool.client.jobpool")


class Forks(rig.Contender):
    """Each worker forks for its share of the jobs, one after another."""

    def __init__(self, wish: dict[str, object]) -> None:
        super().__init__(wish)
        self.waiting: list[tuple[str, str]] = []

    def put(self, kind: str, argument: str) -> None:
        """Keep a job."""
        self.waiting.append((kind, argument))

    def work(self) -> None:
        """Fork the workers, which are ended by their mark."""
        for number in range(self.workers):
            if not os.fork():
                for kind, argument in self.waiting[number :: self.workers]:
                    _forked(lambda k=kind, a=argument: rig.HANDLERS[k](a))
                os._exit(0)


def _forked(work: Callable[[], object]) -> tuple[float, float]:
    """Do something in a fork; return ms of the call, and until it is reaped."""
    began_s = time.perf_counter()
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    forked_s = time.perf_counter()
    os.waitpid(pid, 0)
    return 1000 * (forked_s - began_s), 1000 * (time.perf_counter() - forked_s)


def parts(system: rig.Contender) -> dict[str, float]:
    """Measure the parts of a fork from a process like a zygote; medians."""
    count = int(system.wish["count"])
    for name in ZYGOTE_HAS:
        importlib.import_module(name)
    pairs = [_forked(int) for _ in range(count)]
    ballast = bytearray(BALLAST_MIB * MIB)
    for place in range(0, len(ballast), PAGE_BYTES):
        ballast[place] = 1
    heavy = [_forked(int) for _ in range(count)]
    del ballast
    light_ms, ended_ms = map(statistics.median, zip(*pairs, strict=True))
    heavy_ms, heavy_ended_ms = map(statistics.median, zip(*heavy, strict=True))
    return {
        "ms a fork": light_ms,
        "ms to its end, reaped": ended_ms,
        "ms of page tables for 100 MiB more": 100 * (heavy_ms - light_ms) / BALLAST_MIB,
        "ms to its end for 100 MiB more": 100
        * (heavy_ended_ms - ended_ms)
        / BALLAST_MIB,
        "ms of a zygote's two forks": statistics.median(
            _as_a_zygote() for _ in range(count)
        ),
    }


def _as_a_zygote() -> float:
    """Return ms until a child of the zygote's kind exists."""
    from jobpool.core.isolation.measures import Enclosure  # noqa: PLC0415 - only here
    from jobpool.sandbox.system.process_tree import become_subreaper  # noqa: PLC0415
    from jobpool.sandbox.zygote.forking import fork_child  # noqa: PLC0415

    become_subreaper()
    began_s = time.perf_counter()
    pid = fork_child(lambda _pipe: os._exit(0), Enclosure.NONE)
    took_ms = 1000 * (time.perf_counter() - began_s)
    os.waitpid(pid, 0)
    return took_ms


rig.SCENARIOS["parts"] = parts

if __name__ == "__main__":
    rig.main(Forks)
