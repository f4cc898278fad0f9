"""What the PostgreSQL store promises in figures, on a server that commits to the disk.

The store alone is measured through its protocol in this one process; the sections with
a supervisor are those of SQLite. Every settlement must be accepted.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from figures import (
    Ground,
    Section,
    application,
    check,
    pick_up,
    spread,
    throughput,
)
from psycopg import sql
from psycopg.rows import dict_row

from jobpool.core.job import Evidence, JobState, Lease, NewJob, Settlement
from jobpool.core.outcome import Outcome
from jobpool.store.base import Store
from jobpool.store.opening import open_store
from jobpool.store.records import Receipt, Run
from postgres_server import OwnServer, Server, query_of

RUN = "figures"
RUN_TTL_S = 3600.0
POOL, KIND = "cpu", "noop"
JOB = NewJob(kind=KIND, pool=POOL, payload=b"{}")
BULK = 1000
BATCH = 500
ROUNDS = 3
SMALL_ROWS, SMALL_FINISHED = 20_000, 100
GROWTH_BATCH, GROWTH_BATCHES = 100, 150
WARM_BATCHES = 10
"""By then every statement is prepared and has its plan."""
AUTOVACUUM_S_MAX = 300.0
WINDOW_S = 5.0
FIGURES_OF_A_TEXT = re.compile(r"[\d,.]+")


def cycle(_: Ground, options: argparse.Namespace) -> dict[str, object]:
    """The store alone: settle a batch and lease the next in one transaction."""
    stored: list[float] = []
    cycled: list[float] = []
    for _round in range(ROUNDS):
        with fresh_queue() as queue:
            began = time.perf_counter()
            queue.enqueue(options.cycle)
            stored.append(options.cycle / (time.perf_counter() - began))
            cycled.append(queue.cycle_rate(options.cycle))
    return {
        f"bulk enqueue, {BULK:,} a call: min / median / max jobs/s": rates(stored),
        f"lease-settle cycle, batch {BATCH}: min / median / max jobs/s": rates(cycled),
    }


def single_enqueue(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """One job a call, as an application enqueues; durable when it returns."""
    took_ms: list[float] = []
    with application(ground) as app:
        app.enqueue("warm_up", 1)
        for _ in range(options.calls):
            began = time.perf_counter()
            app.enqueue("noop", 1)
            took_ms.append(1000 * (time.perf_counter() - began))
    way = "unix socket" if server().is_ours else "the given server"
    return {f"enqueue, {way}: p50 / p99 / max ms": spread(took_ms)}


def growth(_: Ground, options: argparse.Namespace) -> dict[str, object]:
    """What a large backlog and a long history add to the time of a lease."""
    check(options.rows >= SMALL_ROWS, f"growth: --rows is at least {SMALL_ROWS:,}")
    found: dict[str, object] = {}
    for when, is_kept, is_warm in SITUATIONS:
        with fresh_queue() as small, fresh_queue() as large:
            for queue in (small, large):
                queue.set_autovacuum(on=is_kept)
                if is_warm:
                    queue.fill(runnable=WARM_BATCHES * GROWTH_BATCH, succeeded=0)
                    queue.warm()
            small.fill(runnable=SMALL_ROWS, succeeded=SMALL_FINISHED)
            large.fill(runnable=options.rows, succeeded=options.rows)
            for queue in (small, large):
                if is_kept:
                    queue.wait_for_autovacuum()
                else:
                    queue.check_unknown()
            found |= compare(small, large, f"{SMALL_ROWS:,} / {options.rows:,}, {when}")
    return found


def snapshot(_: Ground, options: argparse.Namespace) -> dict[str, object]:
    """What an idle transaction costs that keeps dead rows from being removed."""
    said: dict[str, str] = {}
    with fresh_queue() as queue:
        queue.steady_rate(WINDOW_S)
        before = queue.steady_rate(WINDOW_S)
        with idle_transaction(queue) as pid:
            last_window_s = time.monotonic() + options.hold - WINDOW_S
            while (left_s := last_window_s - time.monotonic()) > 0:
                queue.steady_rate(min(WINDOW_S, left_s))
                said |= concerns(queue)
            last = queue.steady_rate(WINDOW_S)
            said |= concerns(queue)
        after = queue.steady_rate(WINDOW_S)
    shown = f"{before:.0f} / {last:.0f} / {after:.0f}"
    what = f"jobs/s before / at the end of / after {options.hold:g} s of idle xact"
    warned = any(f"pid {pid} " in text for text in said.values())
    check(warned, f"snapshot: no warning of the idle session; {what}: {shown}")
    texts = {f"warning {n}": text for n, text in enumerate(said.values(), 1)}
    return {what: shown, **texts}


SITUATIONS = (
    ("no ANALYZE ever", False, False),
    ("autovacuumed", True, False),
    ("grown under its session", False, True),
)
"""Of the table: what it is called, whether autovacuum runs, and whether the session
has made its plans while the table was small."""
SECTIONS: dict[str, Section] = {
    "cycle": cycle,
    "enqueue": single_enqueue,
    "pick-up": pick_up,
    "throughput": throughput,
    "growth": growth,
    "snapshot": snapshot,
}


class Queue:
    """A fresh store with a run begun, and the steps that are measured on it."""

    def __init__(self, store: Store, url: str) -> None:
        self.store, self.url = store, url
        self._jobs = jobs_table(url)

    def enqueue(self, count: int) -> None:
        """Store no-op jobs, a thousand a call."""
        for begin in range(0, count, BULK):
            self.store.enqueue([JOB] * min(BULK, count - begin))

    def lease(self, count: int) -> tuple[Lease, ...]:
        """Lease so many jobs; there must be as many."""
        leases = self.store.lease(RUN, {POOL: count}, {POOL: [KIND]}).leases
        check(len(leases) == count, f"{len(leases)} jobs were leased, not {count}")
        return leases

    def settle(self, ends: Sequence[Settlement]) -> None:
        """Settle, and look at every receipt."""
        refused = set(self.store.settle(ends)) - {Receipt.ACCEPTED}
        check(not refused, f"settlements were answered with {refused}")

    def cycle_rate(self, count: int) -> float:
        """Run all *count* jobs that are stored; return jobs a second."""
        began = time.perf_counter()
        left, ends = count, list[Settlement]()
        while left or ends:
            with self.store.transaction():
                self.settle(ends)
                batch = min(BATCH, left)
                ends = succeeded(self.lease(batch)) if batch else []
            left -= batch
        return count / (time.perf_counter() - began)

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
        """Let the server look after the table, or let it know nothing of it."""
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
            check(time.monotonic() < until, "growth: autovacuum does not come")
            time.sleep(0.5)

    def check_unknown(self) -> None:
        """Make sure that the server has neither vacuumed nor analyzed the table."""
        check(not any(self._maintained()), "growth: autovacuum came uncalled")

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


def compare(small: Queue, large: Queue, which: str) -> dict[str, object]:
    """Measure two queues in turn, so that the machine's noise meets both."""
    small.warm()
    large.warm()
    both = [(small.batch_ms(), large.batch_ms()) for _ in range(GROWTH_BATCHES)]
    found: dict[str, object] = {}
    for step, what in enumerate(("lease", "settle")):
        base = statistics.median(took[step] for took, _ in both)
        grown = statistics.median(took[step] for _, took in both)
        found[f"{what} {GROWTH_BATCH} of {which}: ms, ratio"] = (
            f"{base:.2f} / {grown:.2f}, {grown / base:.2f}"
        )
    return found


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


def concerns(queue: Queue) -> dict[str, str]:
    """Return what the store warns of; the same with other figures is the same."""
    return {FIGURES_OF_A_TEXT.sub("#", text): text for text in queue.store.concerns()}


@contextmanager
def idle_transaction(queue: Queue) -> Iterator[int]:
    """Hold a snapshot and a transaction id, and do nothing; yield the session's pid."""
    # The store's own role: without pg_read_all_stats it does not see others' sessions.
    with server().connect(queue.url) as connection:
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT pg_current_xact_id()")
        yield connection.info.backend_pid
        connection.execute("ROLLBACK")


@contextmanager
def fresh_queue() -> Iterator[Queue]:
    """Open a fresh store and begin a run in it."""
    with fresh_store() as url, closing(open_store(url)) as store:
        run = Run(
            id=RUN,
            host="figures",
            boot_id="figures",
            pid=os.getpid(),
            pid_namespace=1,
            version="0",
        )
        store.begin_run(run, (), RUN_TTL_S)
        yield Queue(store, url)


@contextmanager
def fresh_store(_: Path | None = None) -> Iterator[str]:
    """Name a schema of the server's, and drop it with all that is in it."""
    url = server().fresh_url()
    try:
        yield url
    finally:
        server().drop(url)


def read(url: str, query: str, kind: str) -> list[dict[str, object]]:
    """Read a PostgreSQL store beside the library."""
    found = sql.SQL(query).format(jobs=jobs_table(url), kind=sql.Placeholder("kind"))
    with server().connect(url, row_factory=dict_row) as connection:
        return connection.execute(found, {"kind": kind}).fetchall()


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
            check(value != "off", f"{setting} is off: that is no durable server")
    return found


def rates(values: Sequence[float]) -> str:
    """Write the least, the median and the greatest of some rates."""
    middle = statistics.median(values)
    return f"{min(values):.0f} / {middle:.0f} / {max(values):.0f}"
