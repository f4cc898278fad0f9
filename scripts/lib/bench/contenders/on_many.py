"""Several supervisors on one store: how fast they drain it together, and at what cost.

A handler notes the zygote that its child comes from, so that the measurement begins
only when all supervisors are at work.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import repeat
from typing import Any

import psycopg
import rig

from jobpool import JobPool

jobs = JobPool()  # JOBPOOL_STORE names the store
LATE_SHARE = 0.95
"""The end is left out: some supervisors find nothing any more."""


@jobs.job("cpu", kind="warm")
def warm() -> None:
    """Say whose child it is."""
    rig.note(os.getppid())
    time.sleep(0.02)


@jobs.job("cpu", kind="noop", max_attempts=1)
def noop() -> None:
    """Only begin."""
    rig.note()


class Many(rig.Contender):
    """So many supervisors with two slots each."""

    def put(self, kind: str, argument: str) -> None:
        """Enqueue one job."""
        raise NotImplementedError

    def work(self) -> None:
        """Start the supervisors, and wait until all are at work."""
        lines = ["[pools.cpu]", f"size = {self.workers}", "breaker_after = 0"]
        lines += ["recycle = 1000000"]  # a child that ends takes its CPU time along
        (rig.directory() / "jobpool.toml").write_text("\n".join(lines) + "\n")
        app = str(rig.HERE / "on_many.py")
        words = ["-m", "jobpool", "run", "--app", app, "--log-level", "error"]
        count = self.wish["supervisors"]
        for _ in range(count):
            self.spawn(sys.executable, *words)
        asked = 0
        while len({zygote for _, zygote in rig.records()}) < count:
            jobs.enqueue_many(warm, repeat({}, 4 * count))
            asked += 4 * count
            rig.wait_for_records(asked)


class Server:
    """What the PostgreSQL server says of itself; of SQLite, nothing."""

    def __init__(self) -> None:
        url = os.environ.get("BENCH_POSTGRES")
        self._connection = psycopg.connect(url, autocommit=True) if url else None

    def pids(self) -> list[int]:
        """Return the processes that serve this database, without our own."""
        if self._connection is None:
            return []
        found = self._connection.execute(
            "SELECT pid FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return [pid for (pid,) in found]

    def writes(self) -> int:
        """Return how many transactions have written so far, or tried to.

        Those that only looked are not counted: supervisors that wait look again and
        again. Savepoints that wrote count, too. Known at once, unlike the counts in
        pg_stat_database.
        """
        if self._connection is None:
            return 0
        row = self._connection.execute(
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        ).fetchone()
        return int(row[0]) if row else 0


def many(system: Many) -> dict[str, float]:
    """Drain a backlog with supervisors that are at work."""
    system.work()
    server, count = Server(), system.wish["count"]
    before = len(rig.records())
    jobs.pause(pool="cpu")
    jobs.enqueue_many(noop, repeat({}, count))
    processes = [pid for pid in rig.family() if pid != os.getpid()]
    served, writes = server.pids(), server.writes()
    cpu_s = [sum(map(rig.own_cpu_s, pids)) for pids in (processes, served)]
    jobs.resume(pool="cpu")
    rig.wait_for_records(before + count, poll_s=0.02)
    wrote = server.writes() - writes
    spent_s = [
        sum(map(rig.own_cpu_s, pids)) - cpu
        for pids, cpu in zip((processes, served), cpu_s, strict=True)
    ]
    at = [when for when, _ in rig.records()][before:]
    first, last = int(rig.WARM_SHARE * count), int(LATE_SHARE * count)
    found = {
        "jobs/s": 1e9 * (last - first) / (at[last] - at[first]),
        "us of CPU a job": 1e6 * sum(spent_s) / count,
    }
    if served:
        found["us of the server's CPU a job"] = 1e6 * spent_s[1] / count
        found["jobs a transaction"] = count / wrote
        found["connections"] = float(len(served))
    return found


SCENARIOS: dict[str, Any] = {many.__name__: many}

if __name__ == "__main__":
    rig.SCENARIOS.update(SCENARIOS)
    rig.main(Many)
