"""Flows with more members than one transaction takes: visible at once or not at all."""

import pytest

from jobpool.core.jobs.flow import FlowState
from jobpool.errors import StoreUnavailable, UsageError
from jobpool.store.operations.flows import enqueue
from jobpool.store.records.flows import FlowFilter
from jobpool.store.records.operating import Filter
from support.store.flows import member, new_flow, run_to_end, state, step
from support.store.storing import lease

ENGINES = ["sqlite", "postgres"]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(enqueue, "FLOW_AT_ONCE", 3)
    monkeypatch.setattr(enqueue, "CHUNK_JOBS", 2)


def test_nothing_begins_before_the_last_chunk(store, store_factory):
    """Nobody is shown the flow, and none of its members is leased."""
    other = store_factory()

    def members():
        for _ in range(7):
            yield member(0)
            assert lease(other) == ()
            assert other.flows(FlowFilter()) == []
            assert not other.fold().opened
        yield member(1)

    given = new_flow(step(0), step(1, 0))
    stored = store.enqueue_flow(given, members())
    assert (stored.created, stored.state) == (True, FlowState.OPEN)
    assert run_to_end(store) == [[0] * 7, [1]]
    store.fold()
    assert state(store, stored.id) == "succeeded"


def test_whoever_comes_later_takes_an_unfinished_flow_over(store, store_factory):
    """The one before stops, and what it has stored is gone."""
    other = store_factory()
    given = new_flow(step(0), key="k")
    taken = []

    def members():
        for place in range(8):
            if place == 7:
                taken.append(other.enqueue_flow(given, [member(0)] * 2))
            yield member(0)

    with pytest.raises(StoreUnavailable, match="somebody else has begun"):
        store.enqueue_flow(given, members())
    assert taken[0].created
    assert [row.id for row in store.flows(FlowFilter())] == [taken[0].id]
    assert store.count(Filter()) == 2
    again = store.enqueue_flow(given, [member(0)] * 9)
    assert (again.id, again.created) == (taken[0].id, False)


def test_a_flow_whose_members_fail_to_come_is_not_there(store):
    def members():
        yield from [member(0)] * 6
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        store.enqueue_flow(new_flow(step(0), key="k"), members())
    assert store.count(Filter()) == 0
    assert store.enqueue_flow(new_flow(step(0), key="k"), [member(0)]).created


def test_a_transaction_takes_no_more_than_one_does(store):
    """Nothing is stored then."""
    with store.transaction(), pytest.raises(UsageError, match="at most 3 members"):
        store.enqueue_flow(new_flow(step(0)), [member(0)] * 4)
    assert store.count(Filter()) == 0
