"""Quotas on PostgreSQL: two sessions meet in the middle of their transactions."""

import threading
import time

import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import PermitAsk, PermitReturn, Throttle
from jobpool.store.opening import open_store
from support.postgres.patient_locks import patient_locks
from support.postgres.server import query_of, server
from support.store.quotas import KIND, OTHER, enqueue, publish, quota, stamped
from support.store.storing import KINDS, handed_back, new_job, succeeded
from support.waiting import in_thread, wait_until

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND application_name = 'jobpool'
"""
WAIT_S = 20


@pytest.fixture(scope="module", autouse=True)
def _locks_are_waited_for():
    with patient_locks():
        yield


def somebody_waits():
    """Say whether a session of ours waits for a lock."""
    with server().connect() as connection:
        return connection.execute(WAITING).fetchone()[0] > 0


@pytest.fixture
def pair(store_factory):
    """Two supervisors of one application, whose kinds share two quotas."""
    stores = store_factory(), store_factory()
    for store, run_id in zip(stores, "ab", strict=True):
        publish(
            store,
            quota(concurrency=1),
            quota("second", concurrency=8),
            needs={KIND: ["stripe"], OTHER: ["stripe", "second"]},
            run_id=run_id,
        )
    for store, run_id in zip(stores, "ab", strict=True):
        assert claim(store, run_id) == ()  # They know what is in force.
    return stores


def claim(store, run_id, limit=10):
    return store.lease(run_id, {"cpu": limit}, KINDS).leases


def by_hand(store):
    """Return a direct connection, and the schema's name."""
    return server().connect(store.url), query_of(store.url)["schema"]


def test_two_claims_of_one_bucket_take_turns(pair):
    """The second waits for the first, and then counts what that has taken."""
    first, second = pair
    enqueue(second, 4)
    (granted,) = claim(first, "a", limit=1)
    first.settle([succeeded(granted)])
    with first.transaction():
        assert len(claim(first, "a", limit=1)) == 1
        answer = in_thread(lambda: claim(second, "b"))
        wait_until(somebody_waits, WAIT_S, "the second claim waits")
    wait_until(lambda: answer, WAIT_S, "the end of the second claim")
    assert answer == [()]


def test_a_claim_beside_another_one_that_has_the_notes_asks_again(pair):
    """That one may be rolled back, or leave some of the jobs."""
    first, second = pair
    enqueue(second, 2)
    with first.transaction():
        assert len(claim(first, "a")) == 1
        found = second.lease("b", {"cpu": 1}, KINDS)
    assert (found.leases, found.next_due_in_s) == ((), 0)


def test_a_claim_that_was_rolled_back_has_taken_nothing(pair):
    """Neither permits nor notes: the other gets what it would have got."""
    first, second = pair
    enqueue(second, 1)

    def claim_and_fail():
        with first.transaction():
            assert len(claim(first, "a")) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        claim_and_fail()
    assert len(claim(second, "b")) == 1


def test_a_permit_that_is_freed_while_a_lane_is_being_blocked_wakes_it(pair):
    """The claim has counted the permit before, and its block is not visible yet."""
    first, second = pair
    enqueue(second, 2)
    (granted,) = claim(second, "b")
    with first.transaction():
        assert claim(first, "a") == ()
        second.settle([succeeded(granted)])
    assert len(claim(second, "b")) == 1


def test_a_permit_that_is_freed_uncommitted_does_not_count_yet(pair):
    """A claim in between blocks the lane; the commit frees it."""
    first, second = pair
    enqueue(second, 2)
    (granted,) = claim(second, "b")
    with second.transaction():
        second.settle([succeeded(granted)])
        assert claim(first, "a") == ()
    assert len(claim(first, "a")) == 1


def test_a_job_that_comes_while_its_lane_is_called_empty_is_not_forgotten(pair):
    """Its note is seen later than the lane was left."""
    first, second = pair
    enqueue(second, 1)
    with first.transaction():
        (granted,) = claim(first, "a")
        enqueue(second, 1)
        first.settle([succeeded(granted)])
    assert len(claim(second, "b")) == 1


def test_a_job_that_another_transaction_holds_keeps_its_lane_waiting(pair):
    """That may be rolled back, and leaves no note then."""
    first, second = pair
    (made,) = enqueue(second, 1)
    hand, schema = by_hand(second)
    with hand, hand.transaction(force_rollback=True):
        hand.execute(f"SELECT 1 FROM {schema}.jobs WHERE id = %s FOR UPDATE", [made])  # noqa: S608 - our own
        assert claim(first, "a") == ()
    time_of = second.lease("b", {"cpu": 1}, KINDS)
    if not time_of.leases:  # A lane of which nothing could be had is left for a second.
        assert 0 < time_of.next_due_in_s <= 1


def test_producers_of_one_lane_never_wait_for_each_other_or_for_a_claim(pair):
    """Their transactions stay open as long as they like."""
    first, second = pair
    hands = [by_hand(second)[0] for _ in range(2)]
    for hand in hands:
        hand.autocommit = False
        second.enqueue([stamped()], connection=hand)
    enqueue(second, 1)
    (granted,) = claim(first, "a")
    first.settle([succeeded(granted)])
    assert claim(first, "a") == ()
    for hand in hands:
        hand.commit()
        hand.close()
        (granted,) = claim(first, "a")
        first.settle([succeeded(granted)])
    assert claim(first, "a") == ()


def test_a_straggler_that_others_hold_is_left_to_another_claim(pair):
    """No claim waits for a job."""
    first, second = pair
    made = second.enqueue([new_job()])[0].id
    hand, schema = by_hand(second)
    with hand, hand.transaction(force_rollback=True):
        hand.execute(f"SELECT 1 FROM {schema}.jobs WHERE id = %s FOR UPDATE", [made])  # noqa: S608 - our own
        began_s = time.monotonic()
        assert claim(first, "a") == ()
        assert time.monotonic() - began_s < WAIT_S
    assert [one.id for one in claim(second, "b")] == [made]


def test_a_block_that_is_noted_while_a_claim_holds_the_bucket_holds_for_the_next(pair):
    """It waits for nobody."""
    first, second = pair
    enqueue(second, 3)
    first.settle([succeeded(one) for one in claim(first, "a")])
    with first.transaction():
        (granted,) = claim(first, "a")
        second.block_buckets([Throttle("stripe", "", 5000)])
    first.settle([succeeded(granted)])
    found = second.lease("b", {"cpu": 1}, KINDS)
    assert found.leases == ()
    assert 4 < found.next_due_in_s <= 5


def test_asks_for_permits_in_any_order_do_not_deadlock(store_factory):
    """Claims and asks lock buckets in one order; the caps hold at every moment."""
    stores = [store_factory() for _ in range(4)]
    names = [f"q{n}" for n in range(6)]
    for number, store in enumerate(stores):
        publish(
            store,
            *(quota(name, concurrency=3) for name in names),
            needs={KIND: names[:3], OTHER: names[2:5]},
            run_id=f"run-{number}",
        )
    jobs = 60
    enqueue(stores[0], jobs, KIND)
    enqueue(stores[0], jobs, OTHER)
    done = []
    errors = []
    lock, seen = threading.Lock(), threading.Event()

    def work(store, run_id):
        try:
            while len(done) < 2 * jobs:
                granted = store.lease(run_id, {"cpu": 4}, KINDS).leases
                asks = [
                    PermitAsk(one.id, one.token, n, name, "")
                    for one in granted
                    for n, name in enumerate(reversed(names[-2:]), 1)
                ]
                answers = store.take_permits(run_id, asks)
                if granted:
                    assert seen.wait(WAIT_S)  # else all may be over before a look
                store.return_permits(
                    [
                        PermitReturn(ask.token, ask.n)
                        for ask, answer in zip(asks, answers, strict=True)
                        if answer.granted
                    ]
                )
                store.settle(
                    [
                        handed_back(one) if one.id % 7 == n == 0 else succeeded(one)
                        for n, one in enumerate(granted)
                    ]
                )
                with lock:
                    done.extend(one.id for one in granted)
        except Exception as exc:  # noqa: BLE001 - the test shows it
            errors.append(exc)

    threads = [
        threading.Thread(target=work, args=(store, f"run-{number}"))
        for number, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + 200
    most = 0
    hand, schema = by_hand(stores[0])
    with hand:
        while any(thread.is_alive() for thread in threads):
            assert time.monotonic() < deadline_s, (len(done), errors)
            rows = hand.execute(
                f"SELECT sum(cost) FROM {schema}.permits GROUP BY bucket"  # noqa: S608 - our own
            ).fetchall()
            most = max([most, *(held for (held,) in rows)])
            if most:
                seen.set()
    assert errors == []
    assert 0 < most <= 3


def test_what_a_hand_has_ended_frees_its_permit(pair, clock):
    """No note says so: the bucket is looked at once a second."""
    first, second = pair
    enqueue(second, 2)
    (granted,) = claim(first, "a")
    assert claim(second, "b") == ()
    hand, schema = by_hand(second)
    with hand:
        hand.execute(
            f"UPDATE {schema}.jobs SET state = 'runnable', token = NULL, "  # noqa: S608 - our own
            "supervisor = NULL, leased_at_ms = NULL WHERE id = %s",
            [granted.id],
        )
    clock.advance(1.1)
    assert len(claim(second, "b")) == 1


def test_a_store_object_that_knows_an_older_version_reads_the_new_one(store_factory):
    """Within the transaction of the lease that meets it."""
    first, second = store_factory(), store_factory()
    publish(first, quota(concurrency=1), run_id="a")
    enqueue(first, 3)
    assert len(claim(first, "a")) == 1
    publish(second, quota(concurrency=2), run_id="b")
    assert claim(first, "a") == ()  # The stricter holds.
    first.settle([handed_back(one) for one in first.leases_of("a")])
    first.end_run("a")
    assert len(claim(second, "b")) == 2


def test_opening_again_after_a_crash_loses_no_waiting_lane(pair):
    """What is known of lanes is all in the tables."""
    first, second = pair
    enqueue(second, 2)
    (granted,) = claim(first, "a")
    assert claim(first, "a") == ()
    third = open_store(second.url)
    try:
        second.settle([succeeded(granted)])
        publish(third, quota(concurrency=1), run_id="c")
        assert len(claim(third, "c")) == 1
    finally:
        third.close()


def test_a_run_that_was_taken_to_be_gone_counts_again_when_it_is_back(
    store_factory, clock
):
    """For itself at once, for others within two seconds; before, it was as if ended."""
    first, second = store_factory(), store_factory()
    publish(first, quota(concurrency=1), run_id="a")
    publish(second, quota(concurrency=4), run_id="b")
    enqueue(first, 9)
    clock.advance(200)
    second.renew("b", 60.0, anew=True)
    assert len(claim(second, "b")) == 4
    second.settle([succeeded(one) for one in second.leases_of("b")])
    assert first.prune(Retention()) == 0  # It reads what is in force: without itself.
    first.renew("a", 60.0, anew=True)
    assert len(claim(first, "a")) == 1
    clock.advance(2)
    assert claim(second, "b") == ()
