"""A chain of steps in a supervisor, and single jobs that it picks up."""

from __future__ import annotations

import statistics
import sys
import time
from itertools import pairwise
from typing import Any

import rig

from jobpool import JobPool

jobs = JobPool()  # JOBPOOL_STORE names the store
EVERY_S = 0.05


@jobs.job("io", kind="noop")
def noop() -> None:
    """Only begin."""
    rig.note()


class Flows(rig.Contender):
    """A supervisor with the defaults."""

    def put(self, kind: str, argument: str) -> None:
        """Enqueue one job."""
        raise NotImplementedError

    def work(self) -> None:
        """Start a supervisor."""
        lines = ["[pools.io]", f"size = {self.workers}", "breaker_after = 0"]
        (rig.directory() / "jobpool.toml").write_text("\n".join(lines) + "\n")
        app = str(rig.HERE / "on_flows.py")
        words = ["-m", "jobpool", "run", "--app", app, "--log-level", "error"]
        self.spawn(sys.executable, *words)


def hops(system: Flows) -> dict[str, float]:
    """Rounds of pick-ups of single jobs, and of a chain's hops, in turn."""
    system.work()
    seen = 0
    late: list[float] = []
    hopped: list[float] = []
    for turn in range(-1, system.wish["rounds"]):
        for _ in range(system.wish["count"]):
            time.sleep(EVERY_S if turn >= 0 else 0)
            asked = time.monotonic_ns()
            noop.enqueue()
            seen += 1
            rig.wait_for_records(seen, poll_s=0.001)
            if turn >= 0:
                late.append((rig.records()[-1][0] - asked) / 1e6)
        flow = jobs.flow(f"chain-{turn}")
        step = None
        for _ in range(system.wish["count"]):
            step = flow.add(noop.call(), after=[step] if step else [])
        flow.enqueue()
        rig.wait_for_records(seen + system.wish["count"])
        at = [when for when, _ in rig.records()][seen:]
        seen += system.wish["count"]
        if turn >= 0:
            hopped += [(b - a) / 1e6 for a, b in pairwise(at)]
    pick, hop = statistics.median(late), statistics.median(hopped)
    return {
        "a pick-up: p50 ms": pick,
        "a hop of a chain: p50 ms": hop,
        "a hop of a chain: times a pick-up": hop / pick,
    }


SCENARIOS: dict[str, Any] = {hops.__name__: hops}

if __name__ == "__main__":
    rig.SCENARIOS.update(SCENARIOS)
    rig.main(Flows)
