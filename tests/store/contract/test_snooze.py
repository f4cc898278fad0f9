"""Snoozes: an attempt that says "not yet" leaves a count and a reason, nothing else."""

import pytest

from jobpool.core.jobs.job import JobState, Progress
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules import lifecycle
from jobpool.core.rules.policy import Policy
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.operating import Filter
from support.store.storing import (
    counters,
    ended,
    handed_back,
    lease,
    lease_one,
    new_job,
    snoozed,
    started,
    succeeded,
)

WEEK_S = 7 * 86_400


@pytest.fixture
def granted(store):
    store.enqueue([new_job(key="k", unique="u", max_attempts=1)])
    return lease_one(store)


def snooze(store, clock, after_s=60.0):
    """Lease the one job and let its attempt snooze; return its lease."""
    granted = lease_one(store)
    end = snoozed(granted, after_s, now_ms=clock.utc_ms())
    assert store.settle([end]) == [Receipt.ACCEPTED]
    return granted


def test_a_snooze_leaves_no_attempt(store, granted, clock):
    """No failure, no row, no outcome: a count, a start time, and a reason."""
    store.begin_attempts([started(granted, "cpu/0")])
    clock.advance(3)
    assert store.settle([snoozed(granted)]) == [Receipt.ACCEPTED]
    job = store.get(granted.id)
    assert (job.state, job.attempt, job.outcome) == (JobState.PENDING, 0, None)
    assert (job.snoozes, job.snoozed_since_ms) == (1, clock.utc_ms())
    assert job.run_at_ms == clock.utc_ms() + 60_000
    assert (job.reason, counters(job)) == ("not yet: busy", (0, 0, 0, 0))
    assert job.supervisor is None
    assert store.attempts(job.id) == []
    assert (job.key, job.unique) == ("k", "u")


def test_the_next_attempt_has_the_same_number_and_a_fresh_token(store, granted, clock):
    """And it knows of the snoozes before it, and what they saved."""
    beat = Progress(granted.id, granted.token, progress=None, checkpoint=b"7")
    store.record([beat])
    first_ms = clock.utc_ms()
    store.settle([snoozed(granted)])
    assert lease(store) == ()
    clock.advance(60)
    again = lease_one(store)
    assert (again.attempt, again.checkpoint, again.history) == (1, b"7", ())
    assert again.token > granted.token
    assert (again.snoozes, again.snoozed_since_ms) == (1, first_ms)
    assert store.settle([snoozed(granted)]) == [Receipt.STALE]
    store.settle([snoozed(again)])
    job = store.get(granted.id)
    assert (job.snoozes, job.snoozed_since_ms) == (2, first_ms)


def test_a_snooze_keeps_earlier_failures(store, clock):
    """Their cost, how the last one ended, and their history."""
    store.enqueue([new_job()])
    store.settle([ended(lease_one(store), retry_in_s=0.0, error_classes=("E",))])
    clock.advance(1)
    before = store.get(lease_one(store).id)
    (held,) = store.leases_of("run-1")
    store.settle([snoozed(held)])
    job = store.get(held.id)
    assert (job.outcome, counters(job), job.attempt) == (
        Outcome.FAILED,
        (1, 0, 0, 0),
        1,
    )
    assert (before.attempt, job.shown_state) == (2, "retryable")
    clock.advance(60)
    again = lease_one(store)
    assert (again.attempt, len(again.history)) == (2, 1)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.SUCCEEDED])
def test_any_other_end_resets_the_count_of_snoozes(store, clock, outcome):
    """However it ended. A finished job keeps its count as evidence."""
    store.enqueue([new_job()])
    snooze(store, clock)
    clock.advance(60)
    granted = lease_one(store)
    store.settle([ended(granted, outcome, retry_in_s=0.0)])
    job = store.get(granted.id)
    is_over = job.finished_at_ms is not None
    assert (job.snoozes, job.snoozed_since_ms is None) == (int(is_over), not is_over)


def test_a_job_that_succeeds_keeps_its_count_of_snoozes(store, clock):
    """Its reason is none: it no longer waits for anything."""
    store.enqueue([new_job()])
    granted = snooze(store, clock)
    clock.advance(60)
    store.settle([succeeded(lease_one(store))])
    job = store.get(granted.id)
    assert (job.state, job.snoozes, job.reason) == (JobState.SUCCEEDED, 1, None)


def test_a_hand_back_is_no_snooze_and_resets_none(store, clock):
    """It leaves the count and the reason as they are."""
    store.enqueue([new_job()])
    snooze(store, clock)
    clock.advance(60)
    granted = lease_one(store)
    store.settle([handed_back(granted)])
    job = store.get(granted.id)
    assert (job.state, job.snoozes, job.reason) == ("runnable", 1, "not yet: busy")


@pytest.mark.parametrize("seconds", [1.0, WEEK_S])
def test_a_job_that_snoozes_forever_is_dead(store, clock, seconds, monkeypatch):
    """After so many times or 7 days, with one attempt in its history and the reason."""
    monkeypatch.setattr(lifecycle, "SNOOZES_MAX", 20)
    (one,) = store.enqueue([new_job()])
    times = 0
    while store.get(one.id).state is not JobState.DEAD:
        snooze(store, clock, seconds)
        clock.advance(seconds)
        times += 1
    assert times == (20 if seconds == 1.0 else 2)
    job = store.get(one.id)
    assert job.snoozes == times - 1
    expected = "20 times in a row" if seconds == 1.0 else "for 7d00h"
    assert job.reason == f"not yet: busy; snoozed {expected}"
    assert [one.attempt for one in store.attempts(one.id)] == [1]


def test_a_retry_resets_the_count_of_snoozes(store, clock):
    """An operator has dealt with it."""
    (one,) = store.enqueue([new_job()])
    snooze(store, clock)
    assert store.revive([one.id], (JobState.PENDING,)) == 1
    job = store.get(one.id)
    assert (job.state, job.snoozes, job.snoozed_since_ms) == ("runnable", 0, None)


def test_a_job_that_only_snoozed_still_expires(store, clock):
    """None of its attempts went any further."""
    (one,) = store.enqueue([new_job(expires_in_ms=90_000)])
    snooze(store, clock)
    clock.advance(100)
    assert lease(store) == ()
    job = store.get(one.id)
    assert (job.state, job.reason) == ("canceled", "expired while it was snoozed")


def test_a_snooze_of_a_job_that_is_to_be_canceled_ends_it(store, granted):
    """It does not wait for another attempt."""
    store.cancel([granted.id])
    store.settle([snoozed(granted)])
    assert store.get(granted.id).state is JobState.CANCELED


def test_many_snoozes_and_others_are_settled_together(store, clock):
    """Each as if alone."""
    ids = [one.id for one in store.enqueue([new_job()] * 4)]
    first, second, third, fourth = lease(store)
    ends = [snoozed(first, 5.0), succeeded(second), ended(third), snoozed(fourth, 9.0)]
    assert store.settle(ends) == [Receipt.ACCEPTED] * 4
    jobs = [store.get(job_id) for job_id in ids]
    assert [job.snoozes for job in jobs] == [1, 0, 0, 1]
    assert [job.outcome for job in jobs] == [None, "succeeded", "failed", None]
    assert [len(store.attempts(job_id)) for job_id in ids] == [0, 0, 1, 0]
    waits = [job.run_at_ms - clock.utc_ms() for job in jobs]
    assert (waits[0], waits[3]) == (5000, 9000)


def throttle(store, clock):
    """Lease the one job and let its attempt be throttled; return its lease."""
    granted = lease_one(store)
    ending = lifecycle.Ending(
        outcome=Outcome.FAILED, snooze_s=1.0, throttled=("stripe", "")
    )
    end = lifecycle.account(granted, Policy(), ending, now_ms=clock.utc_ms())
    assert store.settle([end]) == [Receipt.ACCEPTED]
    return granted


def test_a_job_knows_how_often_in_a_row_it_was_throttled(store, clock):
    """And since when; a snooze of its own is not one of them, and ends no row."""
    store.enqueue([new_job()])
    first_ms = clock.utc_ms()
    seen = []
    for turn in (throttle, throttle, snooze, throttle):
        one = turn(store, clock)
        seen.append((one.throttles, one.throttled_since_ms))
        clock.advance(60)
    listed = [store.get(one.id), *store.find(Filter())]
    assert [(job.throttles, job.snoozes) for job in listed] == [(3, 4)] * 2
    assert seen == [(0, None), (1, first_ms), (2, first_ms), (2, first_ms)]
    one = lease_one(store)
    assert (one.throttles, one.throttled_since_ms) == (3, first_ms)
    assert one.snoozes == 4


def test_an_attempt_that_counts_ends_the_row_of_throttles(store, clock):
    """As an operator's retry does; one that is handed back does not."""
    store.enqueue([new_job()])
    throttle(store, clock)
    clock.advance(1)
    back = lease_one(store)
    store.settle([handed_back(back)])
    failing = lease_one(store)
    assert failing.throttles == 1
    store.settle([ended(failing, Outcome.FAILED)])
    clock.advance(WEEK_S)
    again = lease_one(store)
    assert (again.throttles, again.throttled_since_ms) == (0, None)


def test_an_operators_retry_forgets_that_a_job_was_throttled(store, clock):
    """With everything else that counts against it."""
    store.enqueue([new_job()])
    job = throttle(store, clock)
    assert store.revive([job.id], (JobState.PENDING,)) == 1
    assert lease_one(store).throttles == 0
