"""Flows where several transactions are open at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from jobpool.core.jobs.flow import FlowState
from jobpool.core.jobs.job import JobState
from jobpool.errors import StoreUnavailable
from jobpool.store.operations.flows import enqueue
from jobpool.store.records.operating import Replay
from support.postgres.patient_locks import patient_locks
from support.postgres.server import query_of, server
from support.store.flows import (
    died,
    run_to_end,
    settle_all,
    state,
    states,
    step,
    store_flow,
    unfinished,
)
from support.store.storing import begin_run, lease, lease_one, new_job, succeeded
from support.waiting import wait_until

PATIENCE_S = 30
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND application_name = 'jobpool'
"""


@pytest.fixture(scope="module", autouse=True)
def _locks_are_waited_for():
    with patient_locks():
        yield


@pytest.fixture
def other(store_factory):
    store = store_factory()
    begin_run(store, "run-2")
    return store


def test_an_end_that_is_committed_after_a_fold_is_folded_later(store, other):
    """The fold neither waits for it nor loses it."""
    flow = store_flow(store, step(0), step(1, 0), members={0: 2})
    first, second = lease(store)
    store.settle([succeeded(first)])
    with other.transaction():
        other.settle([succeeded(second)])
        assert not store.fold().opened
        assert states(store, flow) == ["ready", "closed"]
    assert store.fold().opened == {"cpu"}
    assert run_to_end(store) == [[1]]


def test_two_folds_of_one_flow_do_not_wait_for_each_other(store, other):
    """The second one leaves the notes, says that it is short, and folds them later."""
    flow = store_flow(store, step(0), step(1), step(2, 0, 1), step(3, 2))
    first, second = lease(store)
    store.settle([succeeded(first)])
    with other.transaction():
        other.fold()
        store.settle([succeeded(second)])
        late = store.fold()
        assert late.is_short
        assert not late.opened
    assert store.fold().opened
    assert run_to_end(store) == [[2], [3]]
    store.fold()
    assert state(store, flow) == "succeeded"


def test_no_end_of_a_member_waits_for_a_fold(store, other):
    """It only leaves a note, which nobody holds."""
    store_flow(store, step(0), step(1, 0), members={0: 2})
    first, second = lease(store)
    store.settle([succeeded(first)])
    with other.transaction():
        other.fold()
        with server().connect(store.url) as hand:
            schema = query_of(store.url)["schema"]
            hand.execute("SET lock_timeout = '5s'")
            ended = hand.execute(
                f"UPDATE {schema}.jobs SET state = 'dead', token = NULL,"  # noqa: S608 - our own
                " supervisor = NULL, leased_at_ms = NULL, outcome = 'failed',"
                f" finished_at_ms = 1 WHERE id = {second.id}"
            )
            assert ended.rowcount == 1
    while store.fold().is_short:
        pass
    assert lease(store) == ()


def test_a_flow_that_is_changed_by_hand_is_not_folded_meanwhile(store, other):
    """A cancellation and a fold take turns; a member that it cancels stays canceled."""
    flow = store_flow(store, step(0), step(1, 0))
    assert settle_all(store) == [0]
    with other.transaction():
        assert other.cancel_flow(flow)
        assert store.fold().is_short
    store.fold()
    assert run_to_end(store) == []
    assert state(store, flow) == FlowState.CANCELED


def test_a_cancel_asks_those_to_stop_whose_rows_others_held(store, other):
    """It waits for nobody; the next fold finds whom it has passed over."""
    flow = store_flow(store, step(0), step(1), members={0: 1, 1: 1})
    (running,) = lease(store, limit=1)
    with server().connect(store.url) as hand:
        hand.autocommit = False
        schema = query_of(store.url)["schema"]
        hand.execute(f"SELECT FROM {schema}.jobs FOR UPDATE")
        store.cancel_flow(flow)
        assert store.fold().is_short
    while store.fold().is_short:
        pass
    assert store.get(running.id).cancel_requested
    assert lease(store) == ()
    store.settle([succeeded(running)])
    while store.fold().is_short:
        pass
    assert state(store, flow) == "canceled"


def test_no_job_is_let_run_again_in_a_step_that_ends_just_then(store, other):
    """It would wait for ever: whoever lets it run waits for the fold first."""
    flow = store_flow(store, step(0), step(1, 0))
    failed = lease_one(store)
    store.settle([died(failed)])
    replay = Replay(job_id=failed.id, new=new_job())
    with ThreadPoolExecutor(2) as threads, server().connect(store.url) as hand:
        with other.transaction():
            other.fold()
            revived = threads.submit(store.revive, [failed.id], [JobState.DEAD])
            replayed = threads.submit(store.replay, [replay])
            wait_until(
                lambda: hand.execute(WAITING).fetchone()[0],
                PATIENCE_S,
                "one of the two waits for the fold, the other for it",
            )
        assert revived.result(PATIENCE_S) == 0
        assert replayed.result(PATIENCE_S) == [None]
    assert state(store, flow) == "failed"
    assert unfinished(store, flow) == []


def test_whoever_takes_over_a_key_leaves_no_member_without_its_step(
    store, other, monkeypatch
):
    """It waits for a part of the former flow that is being committed just then."""
    monkeypatch.setattr(enqueue, "FLOW_AT_ONCE", 2)
    add, touch = type(store)._add, type(store)._touch
    with ThreadPoolExecutor(1) as thread, server().connect(store.url) as hand:
        small = []

        def slowly(self, session, given, draft):
            add(self, session, given, draft)
            if self is store and not small:
                small.append(thread.submit(store_flow, other, step(0), key="k"))
                wait_until(
                    lambda: hand.execute(WAITING).fetchone()[0],
                    PATIENCE_S,
                    "the other waits",
                )

        def behind(self, *given):
            if self is store and small:
                small[0].result(PATIENCE_S)  # else either may be first by now
            touch(self, *given)

        monkeypatch.setattr(type(store), "_add", slowly)
        monkeypatch.setattr(type(store), "_touch", behind)
        with pytest.raises(StoreUnavailable):
            store_flow(store, step(0), key="k", members={0: 3})
        flow = small[0].result(PATIENCE_S)
        schema = query_of(store.url)["schema"]
        steps = hand.execute(
            f"SELECT DISTINCT s.flow FROM {schema}.jobs AS j"  # noqa: S608 - our own
            f" LEFT JOIN {schema}.steps AS s ON s.id = j.step"
        ).fetchall()
    assert [*map(tuple, steps)] == [(flow,)]
