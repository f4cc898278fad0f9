"""What tests of the store share: a clock to move, and short ways to say a thing."""

import contextlib
import sqlite3

import msgspec

from jobpool.core.jobs.job import Evidence, JobState, NewJob, Settlement, Start
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import Ending, account, hand_back
from jobpool.core.rules.policy import Policy
from jobpool.store.memory.store import MemoryStore
from jobpool.store.records.runs import KindRecord, Run
from support.postgres.server import query_of, server

KINDS = {"cpu": ("shop.thumbnail", "shop.resize"), "io": ("shop.fetch",)}
MISFIT = "the stored arguments do not fit"


class ManualClock:
    """Time that moves when the test says so, in either direction."""

    def __init__(self, now_ms=1_800_000_000_000):
        self.now_ms = now_ms
        self.elapsed_s = 0.0

    def utc_ms(self):
        return self.now_ms

    def monotonic_s(self):
        return self.elapsed_s

    def boottime_s(self):
        return self.elapsed_s

    def advance(self, seconds):
        self.now_ms += round(seconds * 1000)
        self.elapsed_s += max(0, seconds)


def new_job(kind="shop.thumbnail", pool="cpu", payload=b"{}", **options):
    return NewJob(kind=kind, pool=pool, payload=payload, **options)


def make_waiting(store, job_id):
    """Put a job that has not begun into the state that no operation leads to yet."""
    if isinstance(store, MemoryStore):
        with store._session.writing:
            row = store._database.jobs[job_id]
            held_back = msgspec.structs.replace(row, state=JobState.WAITING)
            store._database.put_job(row, held_back)
        return
    with _by_hand(store) as (connection, prefix):
        connection.execute(
            f"UPDATE {prefix}jobs SET state = 'waiting' WHERE id = {job_id}"  # noqa: S608 - our own
        )


def try_often(store, clock, job_id, count):
    """Have a job end so many more attempts as it ended its first, one a second.

    In a database they are copied there: to make them takes a hundred times as long.
    """
    if isinstance(store, MemoryStore):
        for _ in range(count):
            (granted,) = store.lease("run-1", {"cpu": 1}, KINDS).leases
            clock.advance(1)
            settlement = ended(granted, Outcome.LOST, now_ms=clock.utc_ms())
            store.settle([msgspec.structs.replace(settlement, state=JobState.PENDING)])
        return
    with _by_hand(store) as (connection, prefix):
        first = (
            f"SELECT * FROM {prefix}attempts WHERE job_id = {job_id} AND attempt = 1"  # noqa: S608
        )
        names = [column[0] for column in connection.execute(first).description]
        values = {name: f"one.{name}" for name in names if name != "id"}
        values["attempt"] = "job.attempt + more.n"
        values["finished_at_ms"] = f"{clock.utc_ms()} + 1000 * more.n"
        connection.execute(
            "WITH RECURSIVE more (n) AS ("  # noqa: S608 - our own
            f"SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < {count}"
            f") INSERT INTO {prefix}attempts ({', '.join(values)}) "
            f"SELECT {', '.join(values.values())} "
            f"FROM ({first}) AS one "
            f"JOIN {prefix}jobs AS job ON job.id = one.job_id CROSS JOIN more"
        )
        connection.execute(
            f"UPDATE {prefix}jobs SET attempt = attempt + {count} WHERE id = {job_id}"  # noqa: S608
        )
    clock.advance(count)


@contextlib.contextmanager
def _by_hand(store):
    """Yield a connection to a store's database, and how its tables' names begin."""
    if store.url.startswith("sqlite"):
        path, prefix = store.url.removeprefix("sqlite:///"), "jobpool_"
        hand = contextlib.closing(sqlite3.connect(path, isolation_level=None))
    else:
        prefix = f"{query_of(store.url)['schema']}."
        hand = contextlib.closing(server().connect(store.url))
    with hand as connection:
        yield connection, prefix


def begin_run(store, run_id="run-1", kinds=(), ttl_s=60.0, **facts):
    usual = {"host": "host", "boot_id": "boot", "pid": 1, "version": "0"}
    run = Run(id=run_id, pid_namespace=1, **{**usual, **facts})
    store.begin_run(run, kinds, ttl_s)
    return run_id


def kind_record(kind="shop.thumbnail", pool="cpu", **facts):
    given = {
        "schema": b"{}",
        "timeout_s": 600.0,
        "memory_bytes": 2**30,
        "max_attempts": 5,
        "max_crashes": 3,
        **facts,
    }
    return KindRecord(kind=kind, pool=pool, **given)


def lease(store, run_id="run-1", limit=100, pool="cpu", kinds=None):
    """Lease from one pool, for a supervisor that has kept renewing; the leases only."""
    store.renew(run_id, 60.0, anew=True)
    return store.lease(run_id, {pool: limit}, kinds or KINDS).leases


def lease_one(store, run_id="run-1", pool="cpu"):
    (only,) = lease(store, run_id, 1, pool)
    return only


def started(granted, slot, began_s=1e12):
    """Say that an attempt has begun; unless it is said when, only now."""
    return Start(granted.id, granted.token, slot, began_s)


def succeeded(granted, result=b'{"ok":1}', **evidence):
    return Settlement(
        id=granted.id,
        token=granted.token,
        state=JobState.SUCCEEDED,
        outcome=Outcome.SUCCEEDED,
        result=result,
        evidence=Evidence(**evidence),
    )


def ended(granted, outcome=Outcome.FAILED, *, policy=None, now_ms=0, **ending):
    """What the accounting point makes of an attempt that did not succeed."""
    return account(
        granted, policy or Policy(), Ending(outcome=outcome, **ending), now_ms=now_ms
    )


def snoozed(granted, after_s=60.0, *, now_ms=0):
    """What the accounting point makes of an attempt that said "not yet"."""
    evidence = Evidence(reason="not yet: busy", slot="cpu/0")
    return ended(granted, snooze_s=after_s, evidence=evidence, now_ms=now_ms)


def misfit(granted, now_ms=0):
    """What the accounting point makes of arguments that do not fit."""
    return ended(
        granted,
        give_up=True,
        misfit=True,
        evidence=Evidence(reason=MISFIT, error_class="E", error="no"),
        now_ms=now_ms,
    )


def handed_back(granted):
    return hand_back(granted)


def counters(job):
    return (job.failures, job.crashes, job.interruptions, job.recoveries)
