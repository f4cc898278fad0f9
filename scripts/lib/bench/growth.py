"""How the cost of a job grows with the backlog, the history and the slots."""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from figures.postgres_store import BULK, JOB, KIND, POOL, RUN, begin_run, succeeded

from bench.report import US, Sample
from bench.running import measure
from bench.sections import Scale
from jobpool.store.opening import open_store

BACKLOGS = (1000, 10_000, 100_000, 1_000_000)
BATCH, BATCHES = 100, 9
SLOTS = (2, 8, 64)
LEASE = "lease of 100, times that of 1,000 queued"
SLOT = "supervisor CPU a job, 64 slots, times that of 2"
COPY = """
INSERT INTO jobpool_jobs ({columns})
SELECT {columns} FROM (SELECT {columns} FROM jobpool_jobs WHERE id = ?)
CROSS JOIN (
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
  SELECT i FROM n
)
"""


def samples(scale: Scale, number: int) -> Iterator[Sample]:
    """Measure one round."""
    base_ms = lease_ms(BACKLOGS[0], 0)
    yield Sample("growth", "lease of 100, 1,000 queued: ms", US, number, base_ms)
    for rows in [each for each in BACKLOGS[1:] if each <= scale.rows]:
        took_ms = lease_ms(rows, 0)
        yield Sample("growth", f"{LEASE}: {rows:,}", US, number, took_ms / base_ms)
    took_ms = lease_ms(scale.rows, scale.rows)
    yield Sample("growth", LEASE, US, number, took_ms / base_ms)
    wish = {
        "scenario": "drain",
        "kind": "noop",
        "count": scale.jobs // 2,
        "is_cpu_asked": True,
    }
    spent_us = [
        measure(US, {**wish, "workers": slots})["us of the first process"]
        for slots in SLOTS
    ]
    for slots, us in zip(SLOTS, spent_us, strict=True):
        yield Sample(
            "growth", f"{slots} slots: us of supervisor CPU a job", US, number, us
        )
    yield Sample("growth", SLOT, US, number, spent_us[-1] / spent_us[0])


def lease_ms(queued: int, finished: int) -> float:
    """Return the median time of a lease of 100 from a backlog of this size."""
    with tempfile.TemporaryDirectory(prefix="jobpool-bench-") as directory:
        path = Path(directory) / "jobs.db"
        with closing(open_store(f"sqlite:///{path}")) as store:
            begin_run(store, RUN)
            store.enqueue([JOB] * 2)
            leases = store.lease(RUN, {POOL: 1}, {POOL: [KIND]}).leases
            store.settle(succeeded(leases))
        _multiply(path, queued=queued, finished=finished)
        took_ms = []
        with closing(open_store(f"sqlite:///{path}")) as store:
            for _ in range(min(BATCHES, queued // BATCH)):
                began_s = time.perf_counter()
                leases = store.lease(RUN, {POOL: BATCH}, {POOL: [KIND]}).leases
                took_ms.append(1000 * (time.perf_counter() - began_s))
                store.settle(succeeded(leases))
                store.enqueue([JOB] * min(BULK, len(leases)))
        return statistics.median(took_ms[1:])


def _multiply(path: Path, *, queued: int, finished: int) -> None:
    """Copy a waiting and a finished job directly in the table."""
    with closing(sqlite3.connect(path)) as database:
        names = [row[1] for row in database.execute("PRAGMA table_info(jobpool_jobs)")]
        statement = COPY.format(columns=", ".join(n for n in names if n != "id"))
        for where, rows in (("NOT NULL", finished), ("NULL", queued)):
            if rows:
                ((job_id,),) = database.execute(
                    f"SELECT max(id) FROM jobpool_jobs WHERE finished_at_ms IS {where}"  # noqa: S608
                ).fetchall()
                database.execute(statement, (job_id, rows))
        database.commit()
