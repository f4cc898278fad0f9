"""Quotas at work: supervisors, their jobs, and what the handlers themselves have seen.

Handlers note when they begin and when they end, so that neither caps nor rates are
judged by what jobpool says of itself.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import rig

from jobpool import JobPool

CAP, JOB_MS = 8, 20
RATE, BURST = 50, 50
BEGUN, ENDED = 1, -1

jobs = JobPool()  # JOBPOOL_STORE names the store
capped = jobs.quota("capped", concurrency=CAP)
paced = jobs.quota("paced", rate=f"{RATE}/s", burst=BURST)
plenty = jobs.quota("plenty", concurrency=100_000)


@jobs.job("io", kind="cap", quotas=[capped])
def cap() -> None:
    """Take its time under a cap."""
    rig.note(BEGUN)
    time.sleep(JOB_MS / 1000)
    rig.note(ENDED)


@jobs.job("io", kind="warm")
def warm() -> None:
    """Only begin."""
    rig.note(BEGUN)


@jobs.job("io", kind="rate", quotas=[paced])
def rate() -> None:
    """Only begin, at a rate."""
    rig.note(BEGUN)


@jobs.job("io", kind="permits", timeout="5m")
def permits(seconds: float) -> None:
    """Ask for one permit after the other."""
    rig.note(0)
    done, until_s = 0, time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        with plenty.permit():
            done += 1
    rig.note(done)


class Quotas(rig.Contender):
    """So many supervisors with so many slots each."""

    def put(self, kind: str, argument: str) -> None:
        """Enqueue one job."""
        raise NotImplementedError

    def work(self) -> None:
        """Start the supervisors."""
        lines = ["[pools.io]", f"size = {self.workers}", "breaker_after = 0"]
        (rig.directory() / "jobpool.toml").write_text("\n".join(lines) + "\n")
        app = str(rig.HERE / "on_quotas.py")
        words = ["-m", "jobpool", "run", "--app", app, "--log-level", "error"]
        for _ in range(self.wish["supervisors"]):
            self.spawn(sys.executable, *words)
        for n in range(self.wish["supervisors"] * 4):  # all of them are up
            warm.enqueue()
            rig.wait_for_records(n + 1)


def binding_cap(system: Quotas) -> dict[str, float]:
    """Jobs a second under a cap that binds, of what it allows, and the most at once."""
    system.work()
    warmed, count = len(rig.records()), system.wish["count"]
    jobs.enqueue_many(cap, ({} for _ in range(count)))
    rig.wait_for_records(warmed + 2 * count)
    found = rig.records()[warmed:]
    most = now = 0
    for _, value in found:
        now += value
        most = max(most, now)
    ends = [at for at, value in found if value == ENDED]
    first = int(rig.WARM_SHARE * count)
    per_s = 1e9 * (count - 1 - first) / (ends[-1] - ends[first])
    return {
        "jobs/s": per_s,
        "% of what the cap allows": 100 * per_s * JOB_MS / 1000 / CAP,
        f"at once, of {CAP}": float(most),
    }


def binding_rate(system: Quotas) -> dict[str, float]:
    """Begins of a minute: how far over any window is, and how much is used."""
    system.work()
    warmed, seconds = len(rig.records()), system.wish["seconds"]
    count = int(RATE * seconds) + BURST
    jobs.enqueue_many(rate, ({} for _ in range(count)))
    rig.wait_for_records(warmed + count)
    begins = [at / 1e9 for at, _ in rig.records()[warmed:]]
    over, start = 0.0, float("-inf")
    for n, at in enumerate(
        begins
    ):  # each as the last of a window, beside its best first
        start = max(start, RATE * at - n)
        over = max(over, n + 1 - RATE * at + start - BURST)
    spent_s = begins[-1] - begins[0]
    return {
        "over any window": over,
        "% of the rate used": 100 * (count - BURST) / (RATE * spent_s),
    }


def asking(system: Quotas) -> dict[str, float]:
    """Permits a second, of so many handlers at once on one supervisor."""
    system.work()
    warmed, seconds = len(rig.records()), system.wish["seconds"]
    handlers = system.wish["handlers"]
    jobs.enqueue_many(permits, ({"seconds": seconds} for _ in range(handlers)))
    rig.wait_for_records(warmed + 2 * handlers)
    found = rig.records()[warmed:]
    span_s = (found[-1][0] - found[0][0]) / 1e9
    return {"permits/s": sum(value for _, value in found) / span_s}


SCENARIOS: dict[str, Any] = {
    each.__name__: each for each in (binding_cap, binding_rate, asking)
}

if __name__ == "__main__":
    rig.SCENARIOS.update(SCENARIOS)
    rig.main(Quotas)
