"""What is interrupted at every point: each change that a store can go through.

An operation is a prepared database and steps, each of which is one transaction. The
clock stands still and tokens have no random bits, so that every run of an operation
makes the same states, and a token that is granted twice is the same number.
"""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import (
    FINISHED,
    Debounce,
    JobState,
    OnConflict,
    PermitAsk,
    PermitReturn,
    Progress,
    RequestReport,
    Throttle,
)
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import StoreUnavailable
from jobpool.operations.arguments.replay import Replacement, Replay, successor
from jobpool.operations.jobs import Cancel, Retry
from jobpool.operations.operate import operate
from jobpool.operations.principal import Principal, Role
from jobpool.operations.queue import Pause, Restored
from jobpool.operations.selection import Selection
from jobpool.sandbox.runs.run_directory import remove_run
from jobpool.store.move import source as move_source
from jobpool.store.records.alerts import AlertEvent, AlertState, Found, Turn
from jobpool.store.sqlite.connection.database import BULK_BYTES
from jobpool.store.sqlite.result_parts import PART_BYTES
from jobpool.store.statements.named_sql import load_migrations
from jobpool.supervisor.maintenance.lost_jobs import reclaim
from jobpool.supervisor.maintenance.restored_runs import take_back_all
from support.crash_points import filter as crash_filter
from support.crash_points.flows import FLOWS
from support.crash_points.preparations import (
    checkpoint_at_once,
    close_source,
    dead_run,
    dies,
    empty,
    finished,
    leased,
    made_by_version,
    metered,
    moving,
    nothing,
    open_at,
    scheduled,
    some,
    source_of,
    unwell,
    without_run,
)
from support.store.old_stores import old_versions
from support.store.quotas import publish, quota
from support.store.scheduling import declared
from support.store.storing import (
    KINDS,
    ManualClock,
    begin_run,
    ended,
    handed_back,
    kind_record,
    lease,
    misfit,
    new_job,
    snoozed,
    succeeded,
)

KNOWN = {"cpu": ("shop.thumbnail",)}
SOMEBODY = Principal(who="somebody", role=Role.ADMIN, origin="a test")
_CANCEL = Cancel(jobs=Selection(ids=(9, 10)))
_RETRY = Retry(jobs=Selection(ids=(6, 7)))
_REPLAY = Replay(
    jobs=Selection(ids=(6, 7)),
    replace=lambda job, _payload: Replacement(
        successor(job, kind=job.kind, pool=job.pool, payload=b'{"n":1}'), ("/n",)
    ),
)
_NOW_MS = ManualClock().now_ms
_MINUTE_AGO_MS = _NOW_MS - 60_000
_NEWEST = len(load_migrations("sqlite"))
_AT_ONCE = Retention(**{f"{state}_s": 0.0 for state in ("succeeded", "dead")})


class Operation(NamedTuple):
    """One change of a store, to be interrupted.

    Attributes:
        prepare: makes the database in a directory; returns what the steps need.
        steps: called with the store and what `prepare` returned.
        opens: opening the store is part of it, not done before.
        checkpoints: the log is copied into the file after each commit.
        versions: schema versions that the file may be seen at meanwhile.
    """

    prepare: Callable[[Path], Any]
    steps: tuple[Callable[[Any, Any], Any], ...]
    opens: bool = False
    checkpoints: bool = False
    versions: tuple[int, ...] = ()


def _settle_all(store, leases):
    """Settle a batch in which each end of an attempt is met."""
    retried = ended(leases[1], Outcome.FAILED)
    poison = msgspec.structs.replace(
        ended(leases[2], Outcome.CRASHED), state=JobState.QUARANTINED, delay_ms=0
    )
    hooked = msgspec.structs.replace(dies(leases[3]), followup=new_job())
    return store.settle(
        [succeeded(leases[0], b"7"), retried, poison, hooked, handed_back(leases[4])]
    )


def _group_commit(store, leases):
    """Do as the store thread: what has piled up goes into one commit."""
    with store.transaction():
        receipts = store.settle([succeeded(one) for one in leases[:3]])
        stored = store.enqueue([new_job(), new_job(key="group")])
        granted = lease(store, limit=2)
    return receipts, stored, granted


def _show(progress, output):
    """Store what is known of attempts that run."""
    return lambda store, leases: store.record(
        [Progress(one.id, one.token, progress, None, 2**20, output) for one in leases]
    )


def _tidy(store, _given):
    """Empty the log, as after a large result."""
    with store._file.reading() as session:
        session.bulk_bytes = BULK_BYTES
    store.tidy()


def _caller_transaction(store, _given):
    """Join jobs to a transaction of the caller's own."""
    path = store.url.removeprefix("sqlite:///")
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as own:
            own.execute("PRAGMA busy_timeout = 50").fetchall()
            with store.caller_transaction(own):
                own.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
                own.execute("INSERT INTO orders VALUES (1)")
                return store.enqueue([new_job(key="order")], connection=own)
    except sqlite3.Error as exc:
        raise StoreUnavailable("the caller's own statement failed") from exc


def _reclaim_run(store, leases):
    """Take a dead run's jobs back: two were running, the others were not."""
    (run,) = store.open_runs() or [None]
    if run is None:
        return []
    running = frozenset(one.token for one in leases[:2])
    return reclaim(store, run, running=running, now_ms=ManualClock().now_ms)


def _take_permits(store, given):
    """Ask for permits beside the leases' own; one bucket has too few."""
    _, (one, other) = given
    asks = ((one, 1, "acme"), (one, 2, "bolt"), (other, 1, "acme"), (other, 2, "acme"))
    return store.take_permits(
        "run-1", [PermitAsk(a.id, a.token, n, "vendor", value) for a, n, value in asks]
    )


def _report(store, granted, requests, failures):
    """Say how an attempt's requests have ended."""
    said = RequestReport("stripe", "", granted.token, requests, failures)
    return store.report_requests([said])


def _find_wrong(store, _given):
    found = (Found(rule="dead", subject="k", summary="dead"),)
    turn = Turn(number=0, notes="1", opened=found, receivers=("webhook",))
    store.take_turn(turn)


def _claimed(store):
    """Return the first alert as its teller knows it, who may be late."""
    return msgspec.structs.replace(store.alerts()[-1], state=AlertState.SENDING)


def _refuse_alert(store, _given):
    store.settle_alert(_claimed(store), AlertEvent.REFUSED, error="away")


def _take_alert(store, _given):
    store.settle_alert(_claimed(store), AlertEvent.TAKEN)


def _find_well(store, _given):
    turn = Turn(number=1, notes="2", ended=(1,), receivers=("webhook",))
    store.take_turn(turn)


def _settle_metered(store, given):
    """End attempts that hold permits: unbegun, throttled, and well."""
    (first, second, third), _ = given
    throttled = msgspec.structs.replace(
        snoozed(second), throttle=Throttle("vendor", "bolt", 60_000)
    )
    return store.settle([handed_back(first), throttled, succeeded(third)])


def _reclaim_metered(store, given):
    return _reclaim_run(store, given[0])


def _publish_again(store, _given):
    """Let another run publish the same, but for one number; whole, or not at all."""
    with store.transaction():  # Else the wish for the format is one of its own.
        named = quota("vendor", concurrency=1, per="args.vendor")
        publish(store, named, run_id="run-2")


def _restore(store, _given):
    """Make a store usable that was restored from a backup."""
    now_ms = ManualClock().now_ms
    action = Restored(
        tokens=10**9, last_id=10**9, take_back=lambda: len(take_back_all(store, now_ms))
    )
    return operate(store, SOMEBODY, action).jobs


def _remove_run(store, _given):
    """Clean up; what cannot be removed stays for the next supervisor."""
    remove_run(store.run_root, "run-1")


def _close_source(store, _given):
    return close_source(store)


def _move_on(store, _given):
    with source_of(store) as source:
        source.step(source.note(), move_source.COMMITTING)


def _give_up_moving(store, _given):
    with source_of(store) as source:
        if source.note() is not None:
            source.reopen()


def _enqueue(*jobs):
    return lambda store, _given: store.enqueue(jobs)


def _lease(limit):
    return lambda store, _given: store.lease("run-1", {"cpu": limit}, KNOWN)


def _prune(limit):
    return lambda store, _given: store.prune(_AT_ONCE, limit)


def _in_parts(one):
    """Return the end of a lease with a result of two parts and a last one."""
    return succeeded(one, b'"' + b"xy" * PART_BYTES + b'"')


def _store_part(store, leases):
    return store.store_part(_in_parts(leases[0]))


def _stats(store, _given):
    return store.stats()


_SHARED = new_job(
    payload=b'{"n":1}', unique="shared", debounce=Debounce(OnConflict.REPLACE)
)
SINGLE = (
    _enqueue(new_job(payload=b'{"n":1}')),
    _enqueue(new_job(key="one", payload=b'{"n":2}')),
    _enqueue(new_job(unique="one", delay_ms=60_000)),
)
CYCLE = (_enqueue(new_job(), new_job()), _lease(2), _lease(3))


def crashed(name, kills_at):
    """Return a preparation: another operation, killed before its n-th call."""

    def prepare(directory):
        operation = OPERATIONS[name]
        given = operation.prepare(directory)
        stores = []

        def before():
            stores.append(open_at(directory))
            if operation.checkpoints:
                checkpoint_at_once(stores[0])

        def act():
            for step in operation.steps:
                step(stores[0], given)

        count = [0]

        def decide(_call):
            count[0] += 1
            return crash_filter.KILL if count[0] == kills_at else crash_filter.GO_ON

        ended = crash_filter.run(act, decide, lambda _report: None, before)
        if ended.code != -9:
            raise ValueError(f"{name} makes fewer than {kills_at} calls: {ended}")

    return prepare


OPERATIONS = {
    "create": Operation(nothing, (_stats,), opens=True, versions=tuple(range(_NEWEST))),
    **{
        f"migrate-{version}": Operation(
            made_by_version(version),
            (_stats,),
            opens=True,
            versions=tuple(range(version, _NEWEST)),
        )
        for version in old_versions("sqlite")
    },
    "open": Operation(some, (_stats,), opens=True),
    "enqueue": Operation(empty, SINGLE),
    "debounce": Operation(
        empty,
        (
            _enqueue(_SHARED),
            _enqueue(msgspec.structs.replace(_SHARED, payload=b'{"n":2}')),
            _lease(1),
            _enqueue(msgspec.structs.replace(_SHARED, payload=b'{"n":3}')),
            _enqueue(msgspec.structs.replace(_SHARED, payload=b'{"n":4}')),
            lambda store, _given: store.settle(
                [succeeded(one) for one in store.leases_of("run-1")]
            ),
        ),
    ),
    "enqueue-bulk": Operation(
        empty,
        (
            lambda store, _given: store.enqueue(
                [new_job(payload=b"[%d]" % n) for n in range(300)]
            ),
            _enqueue(new_job(payload=b'"' + b"x" * 65536 + b'"')),
        ),
    ),
    "lease": Operation(some, (_lease(3), _lease(10))),
    "settle": Operation(
        leased,
        (
            lambda store, leases: store.settle([succeeded(leases[5])]),
            _settle_all,
            lambda store, leases: store.settle([ended(leases[6])]),
        ),
    ),
    "put-off": Operation(
        leased,
        (
            lambda store, leases: store.settle([snoozed(leases[5])]),
            lambda store, leases: store.settle([misfit(leases[6])]),
            lambda store, leases: store.settle(
                [snoozed(leases[7]), misfit(leases[8]), succeeded(leases[9])]
            ),
        ),
    ),
    "quotas": Operation(
        metered,
        (
            lambda store, _given: store.lease("run-1", {"cpu": 4}, KINDS),
            _settle_metered,
            _take_permits,
            lambda store, _given: store.lease("run-1", {"cpu": 9}, KINDS),
            lambda store, given: store.return_permits(
                [PermitReturn(one.token, 1) for one in given[1]]
            ),
            lambda store, _given: store.block_buckets([Throttle("paced", "", 900)]),
            lambda store, given: store.settle([succeeded(given[1][0])]),
            lambda store, _given: store.lease("run-1", {"cpu": 9}, KINDS),
            lambda store, _given: store.reset_quota("paced"),
            lambda store, _given: store.lease("run-1", {"cpu": 9}, KINDS),
        ),
    ),
    "alerts": Operation(
        some,
        (
            _find_wrong,
            lambda store, _given: store.claim_alert(["webhook"], 30.0),
            _refuse_alert,
            lambda store, _given: store.claim_alert(["webhook"], 30.0),
            _take_alert,
            _find_well,
        ),
    ),
    "downstreams": Operation(
        unwell,
        (
            lambda store, given: _report(store, given[0], 2, 1),
            lambda store, given: store.settle([ended(given[0]), succeeded(given[1])]),
            lambda store, given: _report(store, given[2], 4, 4),
            lambda store, _given: store.lease("run-1", {"cpu": 9}, KINDS),
            lambda store, given: store.settle([ended(given[3], retry_in_s=0.0)]),
            lambda store, _given: store.reset_quota("stripe"),
            lambda store, _given: store.lease("run-1", {"cpu": 9}, KINDS),
        ),
    ),
    "quotas-reclaim": Operation(
        metered,
        (
            _reclaim_metered,
            _publish_again,
            lambda store, _given: store.lease("run-2", {"cpu": 9}, KINDS),
        ),
    ),
    "result-parts": Operation(
        leased,
        (
            _store_part,
            _store_part,
            lambda store, leases: store.settle([_in_parts(leases[0])]),
            lambda store, leases: store.store_part(_in_parts(leases[1])),
            lambda store, leases: store.settle([_in_parts(leases[1])]),
            lambda store, leases: store.store_part(_in_parts(leases[2])),
            lambda store, leases: store.settle([handed_back(leases[2])]),
            _prune(1),
        ),
    ),
    "group-commit": Operation(leased, (_group_commit,)),
    "show": Operation(
        leased,
        (
            _show(b"1", b"one"),
            _show(None, b"two"),
            lambda store, leases: store.settle([succeeded(leases[0])]),
        ),
    ),
    "tidy": Operation(
        leased,
        (
            lambda store, leases: store.settle([succeeded(leases[0], b"7")]),
            _tidy,
            lambda store, leases: store.settle([succeeded(leases[1])]),
        ),
    ),
    "caller-transaction": Operation(some, (_caller_transaction,)),
    "reclaim": Operation(dead_run, (_reclaim_run, _remove_run)),
    "restored": Operation(leased, (_restore, _enqueue(new_job()), _restore)),
    "runs": Operation(
        some,
        (
            lambda store, _given: begin_run(store, "run-2", [kind_record()]),
            lambda store, _given: store.renew("run-2", 60.0),
            lambda store, _given: store.end_run("run-2"),
        ),
    ),
    "operate": Operation(
        finished,
        (
            lambda store, _given: store.cancel([9, 10]),
            lambda store, _given: store.revive([9, 6], FINISHED),
            lambda store, _given: store.pause(pool="cpu"),
            lambda store, _given: store.resume(pool="cpu"),
        ),
    ),
    "audited": Operation(
        finished,
        (
            lambda store, _given: operate(store, SOMEBODY, _CANCEL),
            lambda store, _given: operate(store, SOMEBODY, _RETRY),
            lambda store, _given: operate(store, SOMEBODY, Pause(kind="cpu")),
        ),
    ),
    "erase": Operation(
        finished,
        (
            lambda store, _given: store.erase([1, 6]),
            lambda store, _given: store.wipe(),
            lambda store, _given: store.erase([6, 7]),
        ),
    ),
    "replayed": Operation(
        finished,
        (lambda store, _given: operate(store, SOMEBODY, _REPLAY),),
    ),
    "tick": Operation(
        scheduled,
        (
            lambda store, _given: store.tick(2),
            lambda store, _given: store.tick(),
            lambda store, _given: store.publish_schedules("run-1", [declared("own")]),
            lambda store, _given: store.backfill("more", _MINUTE_AGO_MS, _NOW_MS),
            lambda store, _given: store.tick(),
        ),
    ),
    "move-source": Operation(without_run, (_close_source, _move_on)),
    "move-abandon": Operation(moving, (_give_up_moving,)),
    "prune": Operation(finished, (_prune(3), _prune(100))),
    "checkpoint": Operation(some, CYCLE, checkpoints=True),
    **{name: Operation(*parts) for name, parts in FLOWS.items()},
}
_CRASHES = (
    ("enqueue", 20),
    ("enqueue", 40),
    ("enqueue", 60),
    ("settle", 45),
    ("enqueue-bulk", 50),
    ("checkpoint", 30),
    ("checkpoint", 45),
    ("checkpoint", 60),
    ("checkpoint", 90),
)
OPERATIONS |= {
    f"recover-{name}-{at}": Operation(crashed(name, at), (*SINGLE[1:2],), opens=True)
    for name, at in _CRASHES
}
