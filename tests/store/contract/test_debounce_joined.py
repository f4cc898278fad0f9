"""Jobs that share a unique text, where hands and callers change the database too."""

import contextlib
import sqlite3
from contextlib import closing

import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import Debounce, JobState, OnConflict
from jobpool.store.records.operating import Filter
from support.postgres.server import query_of, server
from support.site.handler_site import Site
from support.store.storing import begin_run, lease, lease_one, new_job, succeeded

ENGINES = ["sqlite", "postgres"]
S = JobState
REPLACE = Debounce(OnConflict.REPLACE)
UNTIL_START = Debounce(until_start=True)


def job(payload=b"1", debounce=REPLACE, **options):
    return new_job(payload=payload, unique="u", debounce=debounce, **options)


def enqueue(store, payload=b"1", debounce=REPLACE, connection=None, **options):
    (stored,) = store.enqueue([job(payload, debounce, **options)], connection)
    return stored


@contextlib.contextmanager
def hand_at(store):
    """Open a connection of another program, and say how it names a table."""
    if store.url.startswith("sqlite"):
        path = store.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None)) as hand:
            yield hand, "jobpool_{}".format
    else:
        schema = query_of(store.url)["schema"]
        with closing(server().connect(store.url)) as hand:
            yield hand, f"{schema}.{{}}".format


def change(store, statement, job_id=None):
    """Execute a statement by hand, in which the tables and a job are named."""
    with hand_at(store) as (hand, name):
        tables = {one: name(one) for one in ("jobs", "debounced")}
        hand.execute(statement.format(id=job_id, **tables))


def rows_left(store):
    with hand_at(store) as (hand, name):
        statement = f"SELECT count(*) FROM {name('debounced')}"  # noqa: S608 - our own
        return hand.execute(statement).fetchone()[0]


def a_running_one_and_its_follower(store):
    first = enqueue(store, b"1")
    granted = lease_one(store)
    return first.id, enqueue(store, b"2").id, granted


def test_a_job_that_a_hand_ends_lets_the_next_one_go(store):
    first, second, _ = a_running_one_and_its_follower(store)
    change(
        store,
        "UPDATE {jobs} SET state = 'dead', finished_at_ms = 1, token = NULL, "
        "supervisor = NULL, leased_at_ms = NULL WHERE id = {id}",
        first,
    )
    assert store.get(second).state is S.PENDING
    assert lease_one(store).payload == b"2"


@pytest.mark.parametrize(
    "by_hand",
    [
        "DELETE FROM {jobs} WHERE id = 1",
        "UPDATE {jobs} SET unique_text = NULL WHERE id = 1",
    ],
)
def test_a_job_whose_predecessor_is_simply_gone_is_found(store, by_hand):
    """And so it has the text again, which whoever enqueues later sees."""
    _, second, _ = a_running_one_and_its_follower(store)
    change(store, by_hand)
    assert store.get(second).follows is None
    assert store.release_followers() == 1
    assert store.release_followers() == 0
    assert store.get(second).unique == "u"
    assert enqueue(store, b"3").id == second
    assert lease_one(store).payload == b"3"


def test_who_enqueues_finds_a_follower_that_nobody_lets_go(store):
    """Without a search: the follower takes the update, and need not wait any more."""
    _, second, _ = a_running_one_and_its_follower(store)
    change(store, "DELETE FROM {jobs} WHERE id = 1")
    stored = enqueue(store, b"3")
    assert (stored.id, stored.state, stored.replaced) == (second, S.PENDING, True)
    assert lease_one(store).payload == b"3"


def test_a_search_goes_on_where_the_last_one_has_stopped(store):
    """Bounded, however many wait: those that must wait are passed over."""
    for text in "abcde":
        store.enqueue([new_job(unique=text, debounce=REPLACE)])
    assert len(lease(store)) == 5
    followers = [
        store.enqueue([new_job(unique=text, debounce=REPLACE)])[0].id
        for text in "abcde"
    ]
    change(store, "DELETE FROM {jobs} WHERE id IN (3, 5)")
    assert [store.release_followers(2) for _ in range(3)] == [0, 1, 1]
    found = store.find(Filter(ids=tuple(followers), states=(S.PENDING,)))
    assert sorted(one.id for one in found) == [followers[2], followers[4]]


def test_a_follower_that_a_hand_lets_go_or_removes_blocks_no_text(store):
    _, second, _ = a_running_one_and_its_follower(store)
    change(store, "UPDATE {jobs} SET state = 'runnable' WHERE id = {id}", second)
    third = enqueue(store, b"3")
    assert third.state is S.WAITING
    change(store, "DELETE FROM {jobs} WHERE id = {id}", third.id)
    fourth = enqueue(store, b"4")
    assert (fourth.created, fourth.state) == (True, S.WAITING)
    change(store, "DELETE FROM {debounced} WHERE job_id = {id}", fourth.id)
    assert store.get(fourth.id).state is S.PENDING


def test_an_update_in_a_callers_transaction_counts_from_its_commit(store, clock):
    """After a rollback it has never been; until the end nobody runs the job."""
    first = enqueue(store, b"1")
    with hand_at(store) as (connection, _):
        connection.execute("BEGIN")
        assert enqueue(store, b"2", connection=connection).replaced
        connection.execute("ROLLBACK")
        assert store.payload(first.id) == b"1"
        connection.execute("BEGIN")
        assert enqueue(store, b"3", connection=connection).replaced
        if store.url.startswith("postgres"):
            assert lease(store) == ()
        connection.execute("COMMIT")
        granted = lease_one(store)
        assert granted.payload == b"3"
        connection.execute("BEGIN")
        follower = enqueue(store, b"4", connection=connection)
        connection.execute("ROLLBACK")
        assert store.get(follower.id) is None
        connection.execute("BEGIN")
        follower = enqueue(store, b"5", connection=connection)
        assert follower.state is S.WAITING
        connection.execute("COMMIT")
    assert store.get(follower.id).follows == first.id
    store.settle([succeeded(granted)])
    assert lease_one(store).payload == b"5"


def test_who_keeps_a_job_keeps_it_from_beginning_before_the_commit(store):
    """What is written there besides is there when the job begins."""
    first = enqueue(store, b"1", UNTIL_START)
    with hand_at(store) as (connection, _):
        connection.execute("BEGIN IMMEDIATE" if "sqlite" in store.url else "BEGIN")
        kept = enqueue(store, b"1", UNTIL_START, connection=connection)
        assert (kept.id, kept.created) == (first.id, False)
        if store.url.startswith("postgres"):
            assert lease(store) == ()
        connection.execute("COMMIT")
    assert lease_one(store).id == first.id


def test_a_completion_in_the_handlers_transaction_lets_the_next_one_go(
    new_store_url, clock
):
    with closing(Site(new_store_url(), clock)) as site:
        enqueue(site.store, b"1")
        granted = lease_one(site.store)
        second = enqueue(site.store, b"2")
        site.complete(granted)
        assert site.store.get(second.id).state is S.PENDING
        site.store.settle([succeeded(granted)])
        assert lease_one(site.store).payload == b"2"


def test_nothing_is_left_of_jobs_that_are_pruned_or_erased(store, clock):
    enqueue(store, b"1", UNTIL_START)
    enqueue(store, b"2")
    store.settle([succeeded(lease_one(store))])
    enqueue(store, b"1")
    enqueue(store, b"2")
    store.settle([succeeded(lease_one(store))])
    assert rows_left(store) == 2
    store.erase([1])
    assert rows_left(store) == 1
    assert store.get(1).unique is None
    clock.advance(10)
    store.prune(Retention(succeeded_s=1.0))
    assert (store.count(Filter()), rows_left(store)) == (0, 0)


def test_a_follower_is_let_go_by_another_stores_end(store_factory):
    """Whoever ends the job, and whichever store object had enqueued the other."""
    mine, other = store_factory(), store_factory()
    begin_run(mine)
    _, second, granted = a_running_one_and_its_follower(mine)
    other.settle([succeeded(granted)])
    assert mine.get(second).state is S.PENDING
