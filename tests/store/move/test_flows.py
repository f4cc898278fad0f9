"""A move takes flows along: they go on where they were, or say that they cannot."""

import contextlib
import sqlite3

import pytest

from jobpool.core.jobs.flow import Hook
from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.errors import StoreError, StoreRefused
from jobpool.store.move import move
from jobpool.store.opening import open_store
from support.postgres.server import query_of, server
from support.store.flows import (
    member,
    new_flow,
    only,
    run_to_end,
    state,
    states,
    step,
    store_flow,
    unfinished,
)
from support.store.storing import begin_run, lease, succeeded

DAMAGES = (
    "UPDATE jobpool_flows SET state = 'lost' WHERE id = ?",
    "UPDATE jobpool_flows SET failure = x'00' WHERE id = ?",
    "UPDATE jobpool_flows SET name = CAST(x'ff' AS TEXT) WHERE id = ?",
    "UPDATE jobpool_flows SET finished_at_ms = 9 WHERE id = ?",
    "UPDATE jobpool_flows SET state = 'paused', tenant = x'00' WHERE id = ?",
    "UPDATE jobpool_steps SET state = 'lost' WHERE number = 1 AND flow = ?",
    "UPDATE jobpool_steps SET number = 'one' WHERE number = 1 AND flow = ?",
    "UPDATE jobpool_steps SET hook = 'x', failed = 7 WHERE number = 1 AND flow = ?",
    "UPDATE jobpool_edges SET when_ended = 'later' WHERE flow = ?",
    "UPDATE jobpool_edges SET to_step = 'x', flow = 'y' WHERE flow = ?",
)


@pytest.fixture
def source_url(database_path):
    return f"sqlite:///{database_path}"


@pytest.fixture
def source(source_url, clock):
    with contextlib.closing(open_store(source_url, clock=clock)) as store:
        begin_run(store, "old")
        yield store


@pytest.fixture
def target_url():
    url = server().store_url()
    yield url
    server().drop(url)


@pytest.fixture
def moved(source, source_url, target_url, clock):
    """Return what moves the queue, and returns the target and what was said."""
    stack = contextlib.ExitStack()

    def act():
        source.end_run("old")
        said = move.move(source_url, target_url)
        target = open_store(target_url, clock=clock)
        stack.enter_context(contextlib.closing(target))
        begin_run(target)
        return target, said

    with stack:
        yield act


def by_hand(url, text, *values):
    """Change the file as no store does."""
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as hand:
        hand.execute("PRAGMA ignore_check_constraints = ON")
        hand.execute(text, values)
        hand.commit()


def run_on(target):
    """Let members run until none may begin, and all that follows be folded."""
    found = []
    while rounds := run_to_end(target):
        found += rounds
    while target.fold().is_short:
        pass
    return found


def test_a_flow_goes_on_where_it_was(source, moved):
    """With an end that was not folded, an external step, a join and a hook."""
    flow = store_flow(
        source,
        *(step(0), step(1, 0), step(2, external=True), step(3, 1, 2)),
        step(4, hook=Hook.SUCCESS),
        members={0: 2},
    )
    (one,) = lease(source, run_id="old", limit=1)
    source.settle([succeeded(one, result=b"7")])
    ref = source.flow(flow).row.ref
    target, said = moved()
    assert said.spoilt_flows == ()
    assert states(target, flow) == ["ready", "closed", "ready", "closed", "closed"]
    assert only(target, flow, 1).state is JobState.WAITING
    assert target.flow_id_of(ref) == flow
    assert run_on(target) == [[0], [1]]
    assert target.approve(only(target, flow, 2).id)
    assert run_on(target) == [[3], [4]]
    assert state(target, flow) == "succeeded"
    assert [row[1] for row in target.step_results(flow, None, 0, 9)][:2] == [0, 0]
    assert store_flow(target, step(0)) > flow


def test_what_was_not_folded_before_is_folded_after(source, moved):
    """Also if all that was left to do is to see the end."""
    ended = store_flow(source, step(0), step(1, 0), members={1: 0})
    canceled = store_flow(source, step(0), step(1, 0), step(2))
    source.settle([succeeded(one) for one in lease(source, run_id="old", limit=1)])
    source.cancel_flow(canceled)
    target, _ = moved()
    assert run_on(target) == []
    assert [state(target, flow) for flow in (ended, canceled)] == [
        "succeeded",
        "canceled",
    ]


def test_a_paused_flow_stays_paused(source, moved):
    """Until it is resumed there."""
    flow = store_flow(source, step(0), step(1, 0))
    source.pause_flow(flow)
    target, _ = moved()
    assert run_on(target) == []
    target.resume_flow(flow)
    assert run_on(target) == [[0], [1]]


def test_a_flow_that_was_being_built_is_stored_anew(source, source_url, moved):
    """By who comes with its key: whoever built it could not go on."""
    old = store_flow(source, step(0), step(1, 0), key="k")
    by_hand(source_url, "UPDATE jobpool_flows SET state = 'building', builder = 'b'")
    by_hand(source_url, "UPDATE jobpool_steps SET state = 'closed'")
    by_hand(source_url, "UPDATE jobpool_jobs SET state = 'waiting'")
    target, _ = moved()
    assert run_on(target) == []
    stored = target.enqueue_flow(new_flow(step(0), key="k"), [member(0)])
    assert stored.created
    assert stored.id > old
    assert run_on(target) == [[0]]


def test_a_closed_source_takes_no_flow_and_no_word_to_one(source, source_url, moved):
    """Also of flows without a job that could be refused."""
    flow = store_flow(source, step(0), step(1, 0))
    moved()
    for act in (
        lambda: source.enqueue_flow(new_flow(step(0)), []),
        lambda: source.pause_flow(flow),
        lambda: source.cancel_flow(flow),
    ):
        with pytest.raises(StoreError, match="was moved to"):
            act()


def test_a_move_that_is_abandoned_gives_flows_back(source, source_url, target_url):
    """The source takes them again."""
    flow = store_flow(source, step(0))
    source.end_run("old")
    with server().connect(target_url) as connection:
        schema = query_of(target_url)["schema"]
        open_store(target_url).close()
        connection.execute(
            f"INSERT INTO {schema}.flows (name, state, failure, created_at_ms)"  # noqa: S608 - our own
            " VALUES ('other', 'open', 'fail', 1)"
        )
    with pytest.raises(StoreRefused, match="already has flows"):
        move.move(source_url, target_url)
    move.abandon(source_url)
    assert source.pause_flow(flow)
    assert store_flow(source, step(0)) > flow


def test_of_a_flow_with_a_damaged_row_nothing_more_begins(source, source_url, moved):
    """It is named and canceled, and its hook runs; others go on."""
    flows = [
        store_flow(source, step(0), step(1, 0), step(2, hook=Hook.FAILURE), key=damage)
        for damage in DAMAGES
    ]
    other = store_flow(source, step(0), step(1, 0))
    for flow, damage in zip(flows, DAMAGES, strict=True):
        by_hand(source_url, damage, flow)
    target, said = moved()
    assert said.spoilt_flows == tuple(flows)
    run_on(target)
    assert state(target, other) == "succeeded"
    for flow, damage in zip(flows, DAMAGES, strict=True):
        assert state(target, flow) == "canceled", damage
        assert unfinished(target, flow) == [], damage
        assert only(target, flow, 2).state is JobState.SUCCEEDED, damage


def test_a_damaged_flow_that_has_ended_stays_so(source, source_url, moved):
    """Nothing is left to be prevented."""
    flow = store_flow(source, step(0))
    source.settle([succeeded(one) for one in lease(source, run_id="old", limit=1)])
    source.fold()
    by_hand(source_url, "UPDATE jobpool_flows SET finished_at_ms = NULL")
    target, said = moved()
    run_on(target)
    assert said.spoilt_flows == (flow,)
    assert state(target, flow) == "succeeded"
    assert target.flow(flow).row.finished_at_ms is not None
    assert only(target, flow, 0).state in FINISHED


def test_a_step_of_no_flow_does_not_keep_folds_busy(source, source_url, moved):
    """Its note is deleted, and what else there is goes on."""
    gone = store_flow(source, step(0))
    flow = store_flow(source, step(0), step(1, 0))
    by_hand(source_url, "DELETE FROM jobpool_flows WHERE id = ?", gone)
    target, _ = moved()
    assert not target.fold().is_short
    run_on(target)
    assert state(target, flow) == "succeeded"
