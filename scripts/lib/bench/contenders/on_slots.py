"""jobpool with many slots and default limits; jobs hold some memory for a while."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from itertools import accumulate, repeat
from typing import Any

import rig

from jobpool import JobPool

jobs = JobPool()
FIRST = 100
"""After so many attempts a kind is known."""


@jobs.job("io", kind="hold")
def hold(mib: int, ms: int) -> None:
    """Hold so much memory for so long."""
    rig.note(os.getpid())
    kept = b"x" * (mib * rig.MIB)
    time.sleep(ms / 1000)
    rig.note(-os.getpid())
    del kept


class Slots(rig.Contender):
    """The defaults, on an empty store: nothing is known of the kind."""

    def work(self) -> None:
        """Start a supervisor."""
        lines = ["[pools.io]", f"size = {self.workers}"]
        (rig.directory() / "jobpool.toml").write_text("\n".join(lines) + "\n")
        app = str(rig.HERE / "on_slots.py")
        words = ["-m", "jobpool", "run", "--app", app, "--log-level", "error"]
        self.spawn(sys.executable, *words)


def held(system: rig.Contender) -> dict[str, float]:
    """Run some jobs for each slot, and count how many ran at once."""
    wish = system.wish
    arguments = {"mib": wish["mib"], "ms": wish["ms"]}
    jobs.enqueue_many(hold, repeat(arguments, wish["count"]))
    system.work()
    rig.wait_for_records(2 * wish["count"])
    seen = rig.records()
    begun = [at for at, pid in seen if pid > 0]
    ended = [at for at, pid in seen if pid < 0]
    known_at = ended[FIRST - 1]
    return {
        "slots used at once": _most(seen),
        "slots used before 100 attempts were known": _most(
            [one for one in seen if one[0] <= known_at]
        ),
        "children used": float(len({pid for _, pid in seen if pid > 0})),
        "s from the first start until 100 were known": (known_at - begun[0]) / 1e9,
        "% of all slots, on average": 100
        * sum(ended[i] - begun[i] for i in range(len(begun)))
        / (ended[-1] - begun[0])
        / system.workers,
    }


def _most(seen: Iterable[tuple[int, int]]) -> float:
    """Return how many jobs ran at once, at most."""
    return float(max(accumulate(1 if pid > 0 else -1 for _, pid in seen)))


SCENARIOS: dict[str, Any] = {"hold": held}

if __name__ == "__main__":
    rig.SCENARIOS.update(SCENARIOS)
    rig.main(Slots)
