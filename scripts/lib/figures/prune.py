"""Pruning beside traffic: how long its steps take, and what claims owe to them."""

from __future__ import annotations

import argparse
import multiprocessing
import sqlite3
import time
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Self

from psycopg import sql

from figures import postgres_store
from figures.ground import Ground, check, spread
from figures.postgres_store import FINISHED, KIND, POOL, Queue, begin_run, succeeded
from jobpool.core.clock import SystemClock
from jobpool.core.config.settings import Retention
from jobpool.store.opening import open_store
from jobpool.supervisor.maintenance.pruning import Pruning

ROUNDS = 3
CLAIM_EVERY_S = 0.005
CLAIMED = 10
HOUR_S = 3600.0
KEPT = Retention(succeeded_s=HOUR_S)
BEGIN_S_MAX = 60.0
WARM_S = 1.0

FINISHED_SQLITE = """
INSERT INTO jobpool_jobs (
  kind, pool, state, attempt, created_at_ms, run_at_ms, started_at_ms,
  finished_at_ms, outcome, slot, duration_s, cpu_s, peak_rss_bytes
)
WITH RECURSIVE past (at_ms) AS (
  SELECT :now_ms - 7200000 - :rows
  UNION ALL
  SELECT at_ms + 1 FROM past WHERE at_ms < :now_ms - 7200001
)
SELECT
  :kind, :pool, 'succeeded', 1, at_ms, at_ms, at_ms,
  at_ms + 1, 'succeeded', 'cpu-1', 0.001, 0.001, 30000000
FROM past
"""
PAYLOADS_SQLITE = """
INSERT INTO jobpool_payloads (job_id, payload)
SELECT id, CAST('{"order": 4711}' AS BLOB) FROM jobpool_jobs ORDER BY id
"""


def beside_traffic(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """Claims while a supervisor deletes old jobs, in turn with claims without."""
    with ground.fresh_store(ground.directory) as url, closing(open_store(url)) as store:
        filled_s = fill(url, options.finished)
        begin_run(store, postgres_store.RUN)
        queue = Queue(store, url)
        queue.enqueue(CLAIMED * 100)
        claims_ms(queue, WARM_S)
        alone: list[float] = []
        beside: list[float] = []
        steps: list[tuple[float, int]] = []
        for _ in range(ROUNDS):
            alone += claims_ms(queue, options.slice)
            with Pruner(url) as pruner:
                beside += claims_ms(queue, options.slice)
            steps += pruner.steps
    check(bool(steps), "nothing was pruned")
    deleted = sum(rows for _, rows in steps)
    spent_s = ROUNDS * options.slice
    return {
        f"{options.finished:,} finished jobs were filled in, s": f"{filled_s:.0f}",
        f"deleted in {len(steps):,} steps, jobs/s": f"{deleted / spent_s:,.0f}",
        "a step: p50 / p99 / max ms": spread([took_ms for took_ms, _ in steps]),
        f"a claim of {CLAIMED} without it: p50 / p99 / max ms": spread(alone),
        f"a claim of {CLAIMED} beside it: p50 / p99 / max ms": spread(beside),
    }


def claims_ms(queue: Queue, lasts_s: float) -> list[float]:
    """Enqueue, claim and settle at a steady pace; return the claims' durations."""
    found: list[float] = []
    due = began = time.perf_counter()
    while due - began < lasts_s:
        time.sleep(max(0.0, due - time.perf_counter()))
        asked = time.perf_counter()
        leases = queue.lease(CLAIMED)
        found.append(1000 * (time.perf_counter() - asked))
        queue.settle(succeeded(leases))
        queue.enqueue(CLAIMED)
        due = max(due + CLAIM_EVERY_S, time.perf_counter())
    return found


class Pruner:
    """A process that prunes as a supervisor does, until the end of the block."""

    def __init__(self, url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._answers, answers = context.Pipe(duplex=False)
        self._ends = context.Event()
        self._process = context.Process(
            target=prune_on, args=(url, self._ends, answers)
        )
        self.steps: list[tuple[float, int]] = []
        """Milliseconds and deleted jobs of each."""

    def __enter__(self) -> Self:
        self._process.start()
        check(self._answers.poll(BEGIN_S_MAX), "the pruner did not begin")
        self._answers.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        check(self._answers.poll(BEGIN_S_MAX), "the pruner did not end")
        self.steps = self._answers.recv()
        self._process.join()


def prune_on(url: str, ends: Event, answers: Connection) -> None:
    """Prune at a supervisor's pace until told to end; send the steps."""
    steps: list[tuple[float, int]] = []
    with closing(open_store(url)) as store:
        pruning = Pruning(SystemClock())
        answers.send("ready")
        while not ends.is_set():
            began, rows = time.perf_counter(), pruning.rows
            pause_s = pruning.step(store, KEPT)
            if pause_s is None:
                break
            steps.append((1000 * (time.perf_counter() - began), rows))
            ends.wait(pause_s)
    answers.send(steps)


def fill(url: str, rows: int) -> float:
    """Write old finished jobs straight into the tables; return the seconds it took."""
    began = time.perf_counter()
    if url.startswith("sqlite:"):
        now_ms = round(time.time() * 1000)
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            given = {"now_ms": now_ms, "rows": rows, "kind": KIND, "pool": POOL}
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(FINISHED_SQLITE, given)
            connection.execute(PAYLOADS_SQLITE)
            connection.commit()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    else:
        with postgres_store.server().connect(url) as connection:
            jobs = postgres_store.jobs_table(url)
            values = {"kind": KIND, "pool": POOL, "rows": rows}
            connection.execute(sql.SQL(FINISHED).format(jobs), values)
            connection.execute(sql.SQL("VACUUM ANALYZE {}").format(jobs))
    return time.perf_counter() - began
