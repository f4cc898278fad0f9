"""The databases that are interrupted, each with what its operation needs."""

import contextlib
import functools
import sqlite3
import tempfile
import types
from pathlib import Path
from unittest import mock

import msgspec

from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.schedules.policy import Overlap
from jobpool.sandbox.runs.run_directory import RunDirectory
from jobpool.store.move import source as move_source
from jobpool.store.opening import open_store
from jobpool.store.sqlite import tokens
from jobpool.store.sqlite.connection import connect, write_lock
from support.store.old_stores import make_old
from support.store.quotas import KIND, OTHER, enqueue, publish, quota
from support.store.scheduling import declared
from support.store.storing import (
    KINDS,
    ManualClock,
    begin_run,
    ended,
    kind_record,
    lease,
    new_job,
    succeeded,
)


@contextlib.contextmanager
def repeatable():
    """Make every run produce the same states; whatever runs operations is within this.

    A lock that cannot be taken is reported soon: there is nothing to wait for.
    """
    with (
        mock.patch.object(tokens, "os", types.SimpleNamespace(urandom=bytes)),
        mock.patch.object(
            move_source, "secrets", types.SimpleNamespace(randbits=lambda _bits: 0)
        ),
        mock.patch.object(connect, "BUSY_TIMEOUT_S", 0.05),
        mock.patch.object(write_lock, "WAIT_S", 0.2),
    ):
        yield


def open_at(directory):
    """Open the store of a directory, with the time that stands still."""
    return open_store(f"sqlite:///{directory}/jobs.db", clock=ManualClock())


def make_at(directory):
    """Open the store of an empty directory: a copy of one that this process has made.

    To make it takes most of the time that preparations take.
    """
    path = directory / "jobs.db"
    path.touch(0o600)
    path.write_bytes(_new_file())
    return open_at(directory)


@functools.cache
def _new_file():
    with tempfile.TemporaryDirectory(prefix="jobpool-new-") as made:
        open_at(Path(made)).close()
        return Path(made, "jobs.db").read_bytes()


def checkpoint_at_once(store):
    """Let each commit of a store copy the whole log into the file."""
    connection = store._database._session.connection
    connection.execute("PRAGMA wal_autocheckpoint = 1").fetchall()


@contextlib.contextmanager
def as_of_version(version):
    """Know only the first so many steps of the schema."""
    known = connect.load_migrations
    connect.load_migrations = lambda database: known(database)[:version]
    try:
        yield
    finally:
        connect.load_migrations = known


def made_by_version(version):
    """Return a preparation: a file of an older schema, with jobs in all states."""
    return lambda directory: make_old(f"sqlite:///{directory}/jobs.db", version)


def nothing(directory):
    """Leave the directory empty."""


def empty(directory):
    with contextlib.closing(make_at(directory)) as store:
        begin_run(store)


def some(directory):
    """Make a run, jobs that are due, will be, and have expired."""
    with contextlib.closing(make_at(directory)) as store:
        begin_run(store, kinds=[kind_record()])
        store.enqueue([new_job(payload=b'{"n":%d}' % n) for n in range(12)])
        store.enqueue([new_job(delay_ms=5), new_job(expires_in_ms=5)])
        store.enqueue([new_job(delay_ms=10**6)])
    _move_back(directory, "run_at_ms", "expires_at_ms")


def _move_back(directory, *columns):
    """Make everything due, expired or ended that would be within a second."""
    with contextlib.closing(sqlite3.connect(directory / "jobs.db")) as connection:
        for column in columns:
            connection.execute(
                f"UPDATE jobpool_jobs SET {column} = {column} - 1000 "  # noqa: S608 - the tests' own
                f"WHERE {column} < ?",
                [ManualClock().now_ms + 1000],
            )
        connection.commit()


def leased(directory):
    """Let a run hold ten leases, one of them with a past."""
    some(directory)
    with contextlib.closing(open_at(directory)) as store:
        (first,) = lease(store, limit=1)
        again = msgspec.structs.replace(ended(first), state=JobState.RUNNABLE)
        store.settle([again])
        return lease(store, limit=10)


def scheduled(directory):
    """Have schedules of which ticks are due, wait for others, or replace a retry."""
    clock = ManualClock(ManualClock().now_ms - 121_000)
    with contextlib.closing(
        open_store(f"sqlite:///{directory}/jobs.db", clock=clock)
    ) as store:
        begin_run(store, application="shop", app_version="v1")
        for overlap in Overlap:
            store.put_schedule(declared(overlap.value, overlap=overlap))
        store.tick()
        clock.advance(60)
        store.tick()
        granted = lease(store, limit=len(Overlap))
        clock.advance(60)
        store.tick()
        store.settle([succeeded(granted[0]), ended(granted[1], now_ms=clock.utc_ms())])
        store.put_schedule(declared("more", every_ms=1000))


def metered(directory):
    """Have jobs that quotas hold back, some of no lane yet, and some that run."""
    with contextlib.closing(make_at(directory)) as store:
        named = [
            quota("vendor", concurrency=2, per="args.vendor"),
            quota("paced", rate="10/s", burst=12),
        ]
        publish(store, *named, caps={KIND: 5})
        for vendor in ("acme", "bolt", "coil"):
            enqueue(store, 3, values={"vendor": vendor})
            store.enqueue([new_job(payload=b'{"vendor":"%s"}' % vendor.encode())])
        store.enqueue([new_job(OTHER)] * 2)
        granted = store.lease("run-1", {"cpu": 3}, KINDS).leases
        plain = store.lease("run-1", {"cpu": 2}, {"cpu": (OTHER,)}).leases
        return granted, plain


def unwell(directory):
    """Have a service that fails, leases of jobs that need it, and a retry budget."""
    with contextlib.closing(make_at(directory)) as store:
        rule = BreakerRule(requests=4, pause_s=1)
        publish(
            store,
            quota(breaker=rule, concurrency=5),
            more={"retry_budget": RetryBudget()},
        )
        enqueue(store, 6)
        return store.lease("run-1", {"cpu": 4}, KINDS).leases


def dead_run(directory):
    """Leave what a killed supervisor leaves: leases, and its run directory."""
    leases = leased(directory)
    root = directory / "jobs.db.run"
    root.mkdir(mode=0o700)
    kept = RunDirectory(_made(root / "run-1"), "run-1", directory / "jobpool-t")
    Path(kept.mark_path(0)).write_bytes(bytes(64))
    kept.open_wake()
    kept.close()
    return leases


def _made(directory):
    directory.mkdir(mode=0o700)
    return directory


def finished(directory):
    """Have jobs that succeeded and died, with history and results."""
    leases = leased(directory)
    with contextlib.closing(open_at(directory)) as store:
        store.settle([succeeded(one) for one in leases[:5]])
        store.settle([dies(one) for one in leases[5:8]])
    _move_back(directory, "finished_at_ms")


def without_run(directory):
    """Have jobs and no supervisor, as a queue that is to be moved."""
    some(directory)
    with contextlib.closing(open_at(directory)) as store:
        store.end_run("run-1")


def moving(directory):
    """Have a move begun."""
    without_run(directory)
    with contextlib.closing(open_at(directory)) as store:
        close_source(store)


def dies(granted):
    return msgspec.structs.replace(
        ended(granted, Outcome.CRASHED), state=JobState.DEAD, delay_ms=0
    )


def close_source(store):
    """Begin to move the queue away."""
    with source_of(store) as source:
        return source.close_queue("postgresql://new.example/jobs")


def source_of(store):
    """Return the store as the source of a move; closed at the end of a with."""
    path = store.url.removeprefix("sqlite:///")
    return contextlib.closing(move_source.Source(path))
