"""A PostgreSQL store to measure: a server that commits, a queue, and its steps."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from psycopg import sql

from figures.ground import check
from jobpool.core.jobs.job import Evidence, JobState, Lease, NewJob, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.opening import open_store
from jobpool.store.protocol import Store
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.runs import Run
from support.postgres.server import OwnServer, Server, query_of

RUN = "figures"
RUN_TTL_S = 3600.0
POOL, KIND = "cpu", "noop"
JOB = NewJob(kind=KIND, pool=POOL, payload=b"{}")
BULK = 1000
BATCH = 500
GROWTH_BATCH = 100
WARM_BATCHES = 10
"""Cycles after which every statement is prepared and has its plan."""
AUTOVACUUM_S_MAX = 300.0


class Queue:
    """A new store with a run begun, and the steps that are measured on it."""

    def __init__(self, store: Store, url: str, run: str = RUN) -> None:
        self.store, self.url, self._run = store, url, run

    @property
    def _jobs(self) -> sql.Identifier:
        return jobs_table(self.url)

    def enqueue(self, count: int) -> None:
        """Enqueue no-op jobs, a thousand per call."""
        for begin in range(0, count, BULK):
            self.store.enqueue([JOB] * min(BULK, count - begin))

    def lease(self, count: int) -> tuple[Lease, ...]:
        """Lease *count* jobs; there must be as many."""
        leases = self.store.lease(self._run, {POOL: count}, {POOL: [KIND]}).leases
        check(len(leases) == count, f"{len(leases)} jobs were leased, not {count}")
        return leases

    def settle(self, ends: Sequence[Settlement]) -> list[Settlement]:
        """Settle, and check every receipt; return those that must be sent again."""
        receipts = self.store.settle(ends)
        refused = set(receipts) - {Receipt.ACCEPTED, Receipt.LATER}
        check(not refused, f"settlements were answered with {refused}")
        return [
            end
            for end, receipt in zip(ends, receipts, strict=True)
            if receipt is Receipt.LATER
        ]

    def cycle(self, count: int) -> None:
        """Run *count* of the stored jobs."""
        left, ends = count, list[Settlement]()
        while left or ends:
            with self.store.transaction():
                # Another session may hold a row for a moment.
                later = self.settle(ends)
                leases = self.store.lease(
                    self._run, {POOL: min(BATCH, left)}, {POOL: [KIND]}
                ).leases
            left -= len(leases)
            ends = [*later, *succeeded(leases)]

    def steady_rate(self, lasts_s: float) -> float:
        """Enqueue, lease and settle in turn for a while; return jobs a second."""
        done, began = 0, time.perf_counter()
        while (spent_s := time.perf_counter() - began) < lasts_s:
            self.enqueue(BATCH)
            self.settle(succeeded(self.lease(BATCH)))
            done += BATCH
        return done / spent_s

    def batch_ms(self) -> tuple[float, float]:
        """Lease and settle a batch; return the milliseconds of either."""
        began = time.perf_counter()
        leases = self.lease(GROWTH_BATCH)
        leased = time.perf_counter()
        ends = succeeded(leases)
        ready = time.perf_counter()
        self.settle(ends)
        return 1000 * (leased - began), 1000 * (time.perf_counter() - ready)

    def warm(self) -> None:
        """Let every statement be prepared and have its plan."""
        for _ in range(WARM_BATCHES):
            self.batch_ms()

    def set_autovacuum(self, *, on: bool) -> None:
        """Let the server maintain the table, or keep it from knowing its statistics."""
        with server().connect(self.url) as connection:
            connection.execute(
                sql.SQL("ALTER TABLE {} SET (autovacuum_enabled = {})").format(
                    self._jobs, sql.Literal(on)
                )
            )

    def fill(self, *, runnable: int, succeeded: int) -> None:
        """Write jobs straight into the table: the finished ones are the older."""
        # One transaction, so that no ANALYZE comes between the two.
        with server().connect(self.url) as connection, connection.transaction():
            for statement, rows in ((FINISHED, succeeded), (BACKLOG, runnable)):
                connection.execute(
                    sql.SQL(statement).format(self._jobs),
                    {"kind": KIND, "pool": POOL, "rows": rows},
                )

    def wait_for_autovacuum(self) -> None:
        """Wait until the server has vacuumed and analyzed the table by itself."""
        until = time.monotonic() + AUTOVACUUM_S_MAX
        while not all(self._maintained()):
            check(time.monotonic() < until, "growth: autovacuum did not run")
            time.sleep(0.5)

    def check_unknown(self) -> None:
        """Make sure that the server has neither vacuumed nor analyzed the table."""
        check(not any(self._maintained()), "growth: autovacuum ran unexpectedly")

    def _maintained(self) -> Sequence[bool]:
        with server().connect(self.url) as connection:
            (row,) = connection.execute(
                "SELECT last_autovacuum IS NOT NULL, last_autoanalyze IS NOT NULL "
                "FROM pg_stat_all_tables WHERE relid = %s::regclass",
                [self._jobs.as_string()],
            ).fetchall()
        return row


FINISHED = """
INSERT INTO {} (
  kind, pool, state, payload, attempt, created_at_ms, run_at_ms, started_at_ms,
  finished_at_ms, outcome, slot, duration_s, cpu_s, peak_rss_bytes
)
SELECT
  %(kind)s, %(pool)s, 'succeeded', '{{}}', 1, at_ms, at_ms, at_ms,
  at_ms + 1, 'succeeded', 'cpu-1', 0.001, 0.001, 30000000
FROM (
  SELECT
    floor(extract(epoch FROM now()) * 1000)::bigint - 3600000 - %(rows)s::bigint + n
  FROM generate_series(1, %(rows)s::bigint) AS n
) AS past (at_ms)
"""
BACKLOG = """
INSERT INTO {} (kind, pool, state, payload, created_at_ms, run_at_ms)
SELECT %(kind)s, %(pool)s, 'runnable', '{{}}', at_ms, at_ms
FROM (
  SELECT floor(extract(epoch FROM now()) * 1000)::bigint - %(rows)s::bigint + n
  FROM generate_series(1, %(rows)s::bigint) AS n
) AS past (at_ms)
"""


def succeeded(leases: Sequence[Lease]) -> list[Settlement]:
    """Return the ends of attempts that returned null, with a supervisor's evidence."""
    return [
        Settlement(
            id=lease.id,
            token=lease.token,
            state=JobState.SUCCEEDED,
            outcome=Outcome.SUCCEEDED,
            result=b"null",
            evidence=Evidence(
                peak_rss_bytes=30_000_000, cpu_s=0.001, duration_s=0.001, slot="cpu-1"
            ),
        )
        for lease in leases
    ]


@contextmanager
def fresh_queue() -> Iterator[Queue]:
    """Open a new store and begin a run in it."""
    with fresh_store() as url, closing(open_store(url)) as store:
        begin_run(store, RUN)
        yield Queue(store, url)


def begin_run(store: Store, run_id: str) -> None:
    """Begin a run, as a supervisor does."""
    run = Run(
        id=run_id,
        host="figures",
        boot_id="figures",
        pid=os.getpid(),
        pid_namespace=1,
        version="0",
    )
    store.begin_run(run, (), RUN_TTL_S)


@contextmanager
def fresh_store(_: Path | None = None) -> Iterator[str]:
    """Yield the URL of a new schema; drop it at the end."""
    url = server().fresh_url()
    try:
        yield url
    finally:
        server().drop(url)


def jobs_table(url: str) -> sql.Identifier:
    """Return the name of a store's table of jobs."""
    return sql.Identifier(query_of(url)["schema"], "jobs")


@functools.cache
def server() -> Server:
    """Return the server that is measured; the first call starts it."""
    given = os.environ.get("JOBPOOL_TEST_POSTGRES")
    found = Server(given, given, given) if given else OwnServer(durable=True)
    with found.connect(found.url) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            ((value,),) = connection.execute(f"SHOW {setting}").fetchall()
            check(value != "off", f"{setting} is off: the server is not durable")
    return found
