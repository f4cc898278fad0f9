"""Every method of a store that writes: how to call it, and what shows that it has."""

from typing import Any, NamedTuple

from jobpool.core.config.settings import Retention
from jobpool.core.formats import FORMAT
from jobpool.core.jobs.job import JobState, Progress
from jobpool.core.rules.policy import Policy
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.operating import Filter
from support.store.storing import (
    begin_run,
    ended,
    kind_record,
    lease,
    lease_one,
    new_job,
    started,
    succeeded,
)

ONCE = Policy(max_attempts=1)


class Call(NamedTuple):
    """A method that writes, and how to see from elsewhere that it has."""

    prepare: Any
    """Makes, on another connection, what the method is called with."""
    act: Any
    has_happened: Any
    is_right: Any = bool
    """Says whether a returned value is what a call without a fault returns."""


def nothing(near):
    del near


def one_lease(near):
    near.enqueue([new_job()])
    return lease_one(near)


def one_old_job(near):
    granted = one_lease(near)
    near.settle([succeeded(granted)])
    return granted


def one_dead_job(near):
    granted = one_lease(near)
    near.settle([ended(granted, policy=ONCE)])
    return granted


def state_of(near, granted):
    return near.get(granted.id).state


CALLS = {
    "enqueue with a key": Call(
        nothing,
        lambda far, _: far.enqueue([new_job(key="k"), new_job()]),
        lambda near, _: near.count(Filter()) == 2,
        lambda made: [one.created for one in made] == [True, True],
    ),
    "enqueue and wake": Call(
        nothing,
        lambda far, _: far.enqueue([new_job()], wakes=True),
        lambda near, _: near.count(Filter()) == 1,
        lambda made: [one.created for one in made] == [True],
    ),
    "lease": Call(
        lambda near: near.enqueue([new_job()] * 3),
        lambda far, _: lease(far),
        lambda near, _: near.count(Filter(states=(JobState.LEASED,))) == 3,
        lambda granted: len(granted) == 3,
    ),
    "settle": Call(
        one_lease,
        lambda far, granted: far.settle([succeeded(granted)]),
        lambda near, granted: state_of(near, granted) is JobState.SUCCEEDED,
        lambda receipts: receipts == [Receipt.ACCEPTED],
    ),
    "settle as failed": Call(
        one_lease,
        lambda far, granted: far.settle([ended(granted, policy=ONCE)]),
        lambda near, granted: len(near.attempts(granted.id)) == 1,
        lambda receipts: receipts == [Receipt.ACCEPTED],
    ),
    "settle what is stale": Call(
        one_old_job,
        lambda far, granted: far.settle([succeeded(granted)]),
        lambda near, _: near.describe()["stale_settlements"] == "1",
        lambda receipts: receipts == [Receipt.STALE],
    ),
    "record": Call(
        one_lease,
        lambda far, granted: far.record(
            [Progress(granted.id, granted.token, progress=None, checkpoint=b"1")]
        ),
        lambda near, granted: near.leases_of("run-1")[0].checkpoint == b"1",
        lambda returned: returned is None,
    ),
    "begin_attempts": Call(
        one_lease,
        lambda far, granted: far.begin_attempts([started(granted, "cpu/1")]),
        lambda near, granted: near.get(granted.id).started_at_ms is not None,
        lambda returned: returned is None,
    ),
    "begin_run": Call(
        nothing,
        lambda far, _: begin_run(far, "run-2", [kind_record()]),
        lambda near, _: (len(near.open_runs()), len(near.kinds())) == (2, 1),
    ),
    "require": Call(
        nothing,
        lambda far, _: far.require(FORMAT),
        lambda near, _: near.formats().least == FORMAT,
        lambda returned: returned is None,
    ),
    "end_run": Call(
        nothing,
        lambda far, _: far.end_run("run-1"),
        lambda near, _: near.open_runs() == [],
        lambda returned: returned is None,
    ),
    "cancel what waits": Call(
        lambda near: near.enqueue([new_job()])[0],
        lambda far, made: far.cancel([made.id]),
        lambda near, made: state_of(near, made) is JobState.CANCELED,
    ),
    "cancel what runs": Call(
        one_lease,
        lambda far, granted: far.cancel([granted.id]),
        lambda near, granted: near.cancel_requests("run-1") == [granted.token],
    ),
    "revive": Call(
        one_dead_job,
        lambda far, granted: far.revive([granted.id], (JobState.DEAD,)),
        lambda near, granted: state_of(near, granted) is JobState.RUNNABLE,
    ),
    "pause": Call(
        nothing,
        lambda far, _: far.pause(pool="cpu"),
        lambda near, _: near.paused() == [("pool", "cpu")],
    ),
    "resume": Call(
        lambda near: near.pause(pool="cpu"),
        lambda far, _: far.resume(pool="cpu"),
        lambda near, _: near.paused() == [],
    ),
    "prune": Call(
        one_old_job,
        lambda far, _: far.prune(Retention(succeeded_s=-1.0)),
        lambda near, granted: near.get(granted.id) is None,
        lambda pruned: pruned == 1,
    ),
}
