"""What flows go through, to be interrupted: storing, ends, folds, what people do."""

import contextlib

import msgspec

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.flow import Failure, Hook, NewStep, When
from jobpool.store.opening import open_store
from support.crash_points.preparations import empty, open_at
from support.store.flows import died, member, run_to_end, step, store_flow
from support.store.storing import KINDS, ManualClock, begin_run, lease, succeeded

CHARGE, SHIP, REFUND, ASK, CLEAN = range(5)
STEPS = (
    step(CHARGE),
    step(SHIP, CHARGE),
    step(REFUND, CHARGE, when=When.FAILED),
    NewStep(number=ASK, name="ask", external=True, timeout_ms=60_000),
    NewStep(number=CLEAN, name="clean", hook=Hook.FINISH),
)
_AT_ONCE = Retention(succeeded_s=0.0, dead_s=0.0, canceled_s=0.0)


def _store(store, _given=None):
    return store_flow(store, *STEPS, members={CHARGE: 2}, failure=Failure.CONTINUE)


def _store_keyed(store, _given):
    return store_flow(store, step(0), step(1, 0), key="order-1", members={0: 3})


def _with_a_flow(directory):
    """Have a flow; else the wish for the format would be a transaction of its own."""
    empty(directory)
    with contextlib.closing(open_at(directory)) as store:
        store_flow(store, step(0))


def _begun(directory):
    """Have a flow of which both charges run."""
    empty(directory)
    with contextlib.closing(open_at(directory)) as store:
        flow = _store(store)
        return flow, lease(store)


def _charged(directory):
    """Have a flow with a charge that has added two others, and one that died."""
    flow, leases = _begun(directory)
    with contextlib.closing(open_at(directory)) as store:
        _add(store, leases[0])
        store.settle([died(leases[1])])
    return flow


def _failed(directory):
    """Have a flow that ended a while ago, failed."""
    clock = ManualClock(ManualClock().now_ms - 600_000)
    url = f"sqlite:///{directory}/jobs.db"
    with contextlib.closing(open_store(url, clock=clock)) as store:
        begin_run(store)
        flow = _store(store)
        run_to_end(store, deadly={CHARGE})
        clock.advance(60)
        run_to_end(store)
        store.fold()
        assert store.flow(flow).row.finished_at_ms is not None
    with contextlib.closing(open_at(directory)) as store:
        store.renew("run-1", 60.0, anew=True)
    return flow


def _add(store, one):
    added = tuple(job for _, job in [member(CHARGE)] * 2)
    return store.settle([msgspec.structs.replace(succeeded(one, b"1"), added=added)])


def _lease(store, _given):
    return store.lease("run-1", {"cpu": 9}, KINDS)


def _settle(store, _given):
    """End what runs, whoever leased it."""
    return store.settle([succeeded(one) for one in store.leases_of("run-1")])


def _fold(store, _given):
    return store.fold()


def _ask(store, flow):
    (job,) = (one.first_job for one in store.flow(flow).steps if one.number == ASK)
    return store.approve(job, b'"yes"')


FLOWS = {
    "flow-store": (_with_a_flow, (_store_keyed, _store, _store_keyed)),
    "flow-ends": (
        _begun,
        (
            lambda store, given: _add(store, given[1][0]),
            lambda store, given: store.settle([died(given[1][1])]),
            _fold,
        ),
    ),
    "flow-folds": (
        _charged,
        (
            lambda store, _flow: store.fold(1),
            _ask,
            _lease,
            _settle,
            _fold,
            _lease,
            _settle,
            _fold,
        ),
    ),
    "flow-people": (
        _charged,
        (
            lambda store, flow: store.pause_flow(flow),
            lambda store, flow: store.resume_flow(flow),
            lambda store, flow: store.cancel_flow(flow),
            _fold,
        ),
    ),
    "flow-retry": (
        _failed,
        (lambda store, flow: store.retry_flow(flow), _lease, _settle, _fold),
    ),
    "flow-prune": (_failed, (lambda store, _flow: store.prune(_AT_ONCE),)),
}
"""What prepares each, and its steps."""
