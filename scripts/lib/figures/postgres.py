"""The PostgreSQL store's figures, on a server that commits to the disk.

The store alone is measured through its protocol in this one process; the sections with
a supervisor are those of SQLite. Every settlement must be accepted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing.synchronize import Barrier

from psycopg import sql
from psycopg.rows import dict_row

from figures import ticks, upgrade
from figures.ground import Ground, Section, application, check, spread
from figures.pace import PICK_UP_EVERY_S, pick_up, throughput
from figures.postgres_bare import bare_enqueues, bare_pick_ups
from figures.postgres_store import (
    BATCH,
    BULK,
    GROWTH_BATCH,
    RUN,
    WARM_BATCHES,
    Queue,
    begin_run,
    fresh_queue,
    jobs_table,
    server,
)
from figures.prune import beside_traffic
from jobpool.store.opening import open_store

ROUNDS = 3
SMALL_ROWS, SMALL_FINISHED = 20_000, 100
GROWTH_BATCHES = 150
BEGIN_S_MAX = 60.0
WINDOW_S = 5.0
FIGURES_OF_A_TEXT = re.compile(r"[\d,.]+")


def cycle(_: Ground, options: argparse.Namespace) -> dict[str, object]:
    """The store alone: settle a batch and lease the next in one transaction.

    By one session, which keeps one core busy, and by two, in processes of their own,
    as two supervisors have them.
    """
    stored: list[float] = []
    cycled: dict[int, list[float]] = {1: [], 2: []}
    for sessions, found in list(cycled.items()) * ROUNDS:
        with fresh_queue() as queue:
            began = time.perf_counter()
            queue.enqueue(sessions * options.cycle)
            took_s = time.perf_counter() - began
            stored.append(sessions * options.cycle / took_s)
            found.append(cycle_together(queue.url, sessions, options.cycle))
    rounds = "min / median / max jobs/s"
    return {
        f"bulk enqueue, {BULK:,} a call: {rounds}": rates(stored),
        **{
            f"lease-settle, batch {BATCH}, {sessions} session(s): {rounds}": rates(
                found
            )
            for sessions, found in cycled.items()
        },
    }


def cycle_together(url: str, sessions: int, count: int) -> float:
    """Let each of several processes run *count* jobs; return jobs/s of all together."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(sessions + 1)
    processes = [
        context.Process(target=cycle_alone, args=(url, f"{RUN}-{n}", count, ready))
        for n in range(sessions)
    ]
    for process in processes:
        process.start()
    ready.wait(BEGIN_S_MAX)
    began = time.perf_counter()
    for process in processes:
        process.join()
    took_s = time.perf_counter() - began
    check(not any(process.exitcode for process in processes), "a session failed")
    return sessions * count / took_s


def cycle_alone(url: str, run: str, count: int, ready: Barrier) -> None:
    """Run one session of `cycle_together`."""
    with closing(open_store(url)) as store:
        begin_run(store, run)
        queue = Queue(store, url, run)
        ready.wait(BEGIN_S_MAX)
        queue.cycle(count)


def single_enqueue(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """One job per call, as an application enqueues; durable when it returns."""
    took_ms: list[float] = []
    with application(ground) as app:
        app.enqueue("warm_up", 1)
        for _ in range(options.calls):
            began = time.perf_counter()
            app.enqueue("noop", 1)
            took_ms.append(1000 * (time.perf_counter() - began))
    way = "unix socket" if server().is_ours else "the given server"
    return {
        f"enqueue, {way}: p50 / p99 / max ms": spread(took_ms),
        "a bare row's commit: p50 / p99 / max ms": spread(bare_enqueues(options.calls)),
    }


def pick_up_beside_bare(
    ground: Ground, options: argparse.Namespace
) -> dict[str, object]:
    """From `enqueue()` to the handler, beside what two bare commits take."""
    found = pick_up(ground, options)
    bare = bare_pick_ups(3 * options.kills, PICK_UP_EVERY_S)
    return found | {
        "a bare row, until its taker's commit: p50 / p99 / max ms": spread(bare)
    }


def growth(_: Ground, options: argparse.Namespace) -> dict[str, object]:
    """How a large backlog and a long history slow a lease down."""
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
    """The cost of an idle transaction that keeps dead rows from being removed."""
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
    "pick-up": pick_up_beside_bare,
    "throughput": throughput,
    "growth": growth,
    "prune": beside_traffic,
    "snapshot": snapshot,
    "upgrade": upgrade.beside_traffic,
    "ticks": ticks.steps,
}


def compare(small: Queue, large: Queue, which: str) -> dict[str, object]:
    """Measure two queues in turn, so that noise of the machine meets both."""
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


def concerns(queue: Queue) -> dict[str, str]:
    """Return the store's warnings, without the figures in them."""
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


def read(url: str, query: str, kind: str) -> list[dict[str, object]]:
    """Read a PostgreSQL store directly."""
    found = sql.SQL(query).format(jobs=jobs_table(url), kind=sql.Placeholder("kind"))
    with server().connect(url, row_factory=dict_row) as connection:
        return connection.execute(found, {"kind": kind}).fetchall()


def rates(values: Sequence[float]) -> str:
    """Format the minimum, median and maximum of rates."""
    middle = statistics.median(values)
    return f"{min(values):.0f} / {middle:.0f} / {max(values):.0f}"
