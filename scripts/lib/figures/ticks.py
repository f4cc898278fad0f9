"""Steps of schedules: ten thousand an hour, and ten thousand in one second."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from figures import postgres_store
from figures.ground import Ground, check, p99, spread
from figures.postgres_store import POOL, Queue
from figures.prune import BEGIN_S_MAX, CLAIMED, WARM_S, claims_ms
from jobpool.core.rules.schedules.policy import Overlap, Policy
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.store.opening import open_store
from jobpool.store.postgres.store import PostgresStore
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.store.records.runs import Run

SCHEDULES = 10_000
HOUR_MS = 3_600_000
SOON_MS = 600_000
KIND = "tick"
RUN = "schedules"
TTL_S = 10 * 3600.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ShiftedClock:
    """The time of a step, as the figure wants it."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def utc_ms(self) -> int:
        """See `Clock.utc_ms`."""
        return self.now_ms

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return time.monotonic()

    def boottime_s(self) -> float:
        """See `Clock.boottime_s`."""
        return time.monotonic()


def steps(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """An hour of hourly schedules; then all of them due at once, beside claims."""
    return {**an_hour(ground), **at_once(ground, options)}


def an_hour(ground: Ground) -> dict[str, object]:
    """One step a second, as an idle supervisor makes them; what that costs."""
    directory = ground.directory / "hour"
    directory.mkdir()
    rule = Rule(every_ms=HOUR_MS, jitter_ms=HOUR_MS - 1)
    with scheduled(ground, directory, rule) as (store, clock, published_s, _):
        clock.now_ms += HOUR_MS  # Their first ticks are due in the hour after this.
        spent_s, enqueued = cpu_s(store), 0
        for _ in range(HOUR_MS // 1000):
            clock.now_ms += 1000
            enqueued += store.tick().enqueued
        spent_s = cpu_s(store) - spent_s
    check(enqueued >= SCHEDULES * 0.99, f"{enqueued} ticks were enqueued")
    return {
        f"{SCHEDULES:,} schedules are published in, s": round(published_s, 1),
        f"an hour of {SCHEDULES:,} hourly schedules, CPU s": round(spent_s, 1),
        "on average, % of a core": round(100 * spent_s / (HOUR_MS / 1000), 2),
    }


def at_once(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """Ten thousand ticks due in one second, and what others' claims owe to them."""
    directory = ground.directory / "burst"
    directory.mkdir()
    start_ms = round(time.time() * 1000) + SOON_MS
    rule = Rule(every_ms=HOUR_MS, starts_ms=start_ms)
    with scheduled(ground, directory, rule) as (store, _clock, _published_s, url):
        queue = Queue(store, url, RUN)
        queue.enqueue(CLAIMED * 100)
        claims_ms(queue, WARM_S)
        alone = claims_ms(queue, options.slice)
        context = multiprocessing.get_context("spawn")
        answer, answers = context.Pipe(duplex=False)
        stepper = context.Process(target=step_all, args=(url, start_ms, answers))
        stepper.start()
        check(answer.poll(BEGIN_S_MAX), "the steps did not begin")
        answer.recv()
        beside: list[float] = []
        while not answer.poll():
            beside += claims_ms(queue, 0.1)
        took_s: float = answer.recv()
        stepper.join()
        stored = store.count(Filter(kind=KIND))
    check(stored == SCHEDULES, f"{stored} ticks were stored")
    return {
        f"{SCHEDULES:,} ticks due at once are stored in, s": round(took_s, 2),
        f"a claim of {CLAIMED} without them: p50 / p99 / max ms": spread(alone),
        f"a claim of {CLAIMED} beside them: p50 / p99 / max ms": spread(beside),
        "p99, beside to without": round(p99(beside) / p99(alone), 1),
    }


def step_all(url: str, now_ms: int, answers: Connection) -> None:
    """Make steps until nothing is due; send how long that took."""
    with closing(open_store(url, clock=ShiftedClock(now_ms))) as store:
        answers.send("ready")
        began = time.perf_counter()
        while store.tick().next_due_in_s == 0:
            pass
        answers.send(time.perf_counter() - began)


@contextmanager
def scheduled(
    ground: Ground, directory: Path, rule: Rule
) -> Iterator[tuple[Store, ShiftedClock, float, str]]:
    """Publish ten thousand schedules of a rule, and let steps plan them."""
    clock = ShiftedClock(round(time.time() * 1000))
    with (
        ground.fresh_store(directory) as url,
        closing(open_store(url, clock=clock)) as store,
    ):
        run = Run(
            id=RUN,
            host="figures",
            boot_id="figures",
            pid=os.getpid(),
            pid_namespace=1,
            version="0",
            application="figures",
        )
        store.begin_run(run, (), TTL_S)
        wanted = [
            Declared(
                name=f"s{number}",
                kind=KIND,
                pool=POOL,
                payload=b'{"order":4711}',
                rule=rule,
                policy=Policy(overlap=Overlap.ALLOW_ALL),
            )
            for number in range(SCHEDULES)
        ]
        began = time.perf_counter()
        store.publish_schedules(RUN, wanted)
        published_s = time.perf_counter() - began
        while store.tick().next_due_in_s == 0:
            pass
        if url.startswith("postgresql"):
            with postgres_store.server().connect(url) as connection:
                connection.execute("VACUUM ANALYZE")
        yield store, clock, published_s, url


def cpu_s(store: Store) -> float:
    """Return the CPU time of this process, and of the server's for it."""
    spent_s = time.process_time()
    if isinstance(store, PostgresStore):
        with store._server.reading() as session:  # noqa: SLF001 - nobody else asks
            pid = session.connection.info.backend_pid
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent_s += (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return spent_s
