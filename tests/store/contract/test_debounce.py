"""Jobs that share a unique text: no update is lost, and at most one job waits."""

import pytest

from jobpool.core.jobs.job import Debounce, JobState, OnConflict
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.admission import Admission
from jobpool.core.rules.policy import Policy
from jobpool.errors import QueueFull, UsageError
from jobpool.store.records.operating import Filter
from support.store.storing import (
    ended,
    handed_back,
    lease,
    lease_one,
    misfit,
    new_job,
    snoozed,
    succeeded,
)

S = JobState
REPLACE = Debounce(OnConflict.REPLACE)
POSTPONE = Debounce(OnConflict.POSTPONE, postpone_max_ms=60_000)
UNTIL_START = Debounce(until_start=True)


def job(payload=b"1", debounce=REPLACE, **options):
    return new_job(payload=payload, unique="u", debounce=debounce, **options)


def enqueue(store, payload=b"1", debounce=REPLACE, **options):
    (stored,) = store.enqueue([job(payload, debounce, **options)])
    return stored


def run_next(store):
    """Run the only job that may run; return its arguments."""
    granted = lease_one(store)
    store.settle([succeeded(granted)])
    return granted.payload


def told(stored):
    return stored.created, stored.replaced, stored.postponed, stored.state


def test_replace_changes_the_job_in_place(store, clock):
    """Arguments and options are the new ones; id, age and due time the old ones."""
    first = enqueue(store, b"1", delay_ms=5000, priority=1)
    assert told(first) == (True, False, False, S.PENDING)
    before = store.get(first.id)
    clock.advance(1)
    options = {"priority": 7, "tenant": "acme", "max_attempts": 2, "timeout_s": 3.0}
    second = enqueue(store, b"22", memory_bytes=4096, expires_in_ms=9000, **options)
    assert second.id == first.id
    assert told(second) == (False, True, False, S.PENDING)
    after = store.get(first.id)
    assert store.payload(first.id) == b"22"
    assert (after.created_at_ms, after.run_at_ms) == (
        before.created_at_ms,
        before.run_at_ms,
    )
    assert {name: getattr(after, name) for name in options} == options
    assert (after.memory_bytes, after.expires_at_ms) == (4096, clock.utc_ms() + 9000)
    assert (after.unique, after.replacements, after.postponements) == ("u", 1, 0)
    clock.advance(4)
    assert run_next(store) == b"22"
    assert store.get(first.id).replacements == 1
    assert enqueue(store).id != first.id


def test_another_pool_takes_the_job_along(store):
    first = enqueue(store)
    enqueue(store, pool="io")
    assert lease(store) == ()
    (granted,) = lease(store, pool="io", kinds={"io": ("shop.thumbnail",)})
    assert granted.id == first.id


def test_postpone_makes_it_due_later_up_to_a_bound(store, clock):
    """Each call moves it, but not beyond the bound, counted from its creation."""
    first = enqueue(store, b"1", POSTPONE, delay_ms=5000)
    created_ms = clock.utc_ms()
    for seconds, wanted_s in ((3, 8), (4, 12), (50, 60), (2, 60)):
        clock.advance(seconds)
        stored = enqueue(store, b"2", POSTPONE, delay_ms=5000)
        assert stored.id == first.id
        assert told(stored) == (False, True, True, S.PENDING)
        assert store.get(first.id).run_at_ms == created_ms + wanted_s * 1000
        assert lease(store) == ()
    shown = store.get(first.id)
    assert (shown.replacements, shown.postponements) == (4, 4)
    clock.advance(1)
    assert run_next(store) == b"2"


def test_a_due_job_is_postponed_too(store, clock):
    first = enqueue(store, b"1")
    assert first.state is S.RUNNABLE
    assert enqueue(store, b"2", POSTPONE, delay_ms=1000).state is S.PENDING
    assert lease(store) == ()
    clock.advance(1)
    assert run_next(store) == b"2"


def test_beside_a_running_job_one_waits_and_takes_every_update(store, clock):
    """It is the only one, has the newest arguments, and begins after that has ended."""
    first = enqueue(store, b"1")
    running = lease_one(store)
    second = enqueue(store, b"2")
    assert told(second) == (True, False, False, S.WAITING)
    third = enqueue(store, b"3", POSTPONE, delay_ms=2000)
    assert told(third) == (False, True, True, S.WAITING)
    assert third.id == second.id
    shown = store.get(second.id)
    assert (shown.unique, shown.follows, shown.state) == ("u", first.id, S.WAITING)
    assert store.get(first.id).followed_by == second.id
    assert lease(store) == ()
    clock.advance(5)
    assert lease(store) == ()
    store.settle([succeeded(running)])
    after = store.get(second.id)
    assert (after.state, after.follows, after.unique) == (S.PENDING, None, "u")
    fourth = enqueue(store, b"4")
    assert told(fourth) == (False, True, False, S.PENDING)
    assert run_next(store) == b"4"
    assert store.get(second.id).followed_by is None


def begun(store, clock):
    """Make a job that has begun; return its lease."""
    enqueue(store, b"1")
    return lease_one(store)


def by_success(store, clock, granted):
    store.settle([succeeded(granted)])


def by_death(store, clock, granted):
    store.settle([ended(granted, give_up=True)])


def by_quarantine(store, clock, granted):
    end = ended(granted, Outcome.CRASHED, policy=Policy(max_crashes=1))
    assert end.state is S.QUARANTINED
    store.settle([end])


def by_cancel(store, clock, granted):
    assert store.cancel([granted.id]) == 1
    store.settle([ended(granted, Outcome.CANCELED)])


def by_cancel_between_attempts(store, clock, granted):
    store.settle([ended(granted, retry_in_s=60.0)])
    assert store.cancel([granted.id]) == 1


def by_cancel_of_a_snoozed_one(store, clock, granted):
    store.settle([snoozed(granted)])
    assert store.cancel([granted.id]) == 1


def by_expiry_of_a_snoozed_one(store, clock, granted):
    store.settle([snoozed(granted, 60.0, now_ms=clock.utc_ms())])
    clock.advance(30)
    lease(store, limit=0)


ENDS = [
    by_success,
    by_death,
    by_quarantine,
    by_cancel,
    by_cancel_between_attempts,
    by_cancel_of_a_snoozed_one,
    by_expiry_of_a_snoozed_one,
]


@pytest.mark.parametrize("end", ENDS)
def test_however_a_job_ends_the_next_one_is_let_go(store, clock, end):
    first = enqueue(store, b"1", expires_in_ms=20_000)
    granted = lease_one(store)
    second = enqueue(store, b"2")
    assert second.state is S.WAITING
    end(store, clock, granted)
    assert store.get(first.id).state not in {S.PENDING, S.LEASED}
    assert store.get(second.id).state in {S.PENDING, S.RUNNABLE}
    assert run_next(store) == b"2"
    assert store.release_followers() == 0


def test_a_job_that_is_tried_again_or_snoozes_has_begun(store, clock):
    """It keeps its arguments; the newer ones wait until it has ended for good."""
    granted = begun(store, clock)
    store.settle([ended(granted, retry_in_s=1.0)])
    second = enqueue(store, b"2")
    assert second.state is S.WAITING
    clock.advance(1)
    granted = lease_one(store)
    assert granted.payload == b"1"
    store.settle([snoozed(granted, 1.0, now_ms=clock.utc_ms())])
    assert enqueue(store, b"3").id == second.id
    clock.advance(1)
    assert run_next(store) == b"1"
    assert run_next(store) == b"3"


def test_an_update_behind_a_job_that_was_handed_back_stays_behind_it(store, clock):
    """The newest arguments are with the one that waits, and run last."""
    granted = begun(store, clock)
    second = enqueue(store, b"2")
    store.settle([handed_back(granted)])
    assert told(enqueue(store, b"3")) == (False, True, False, S.WAITING)
    assert run_next(store) == b"1"
    assert run_next(store) == b"3"
    assert store.get(second.id).state is S.SUCCEEDED


def test_a_job_with_a_key_keeps_its_arguments(store):
    """Its key says which they are; the newer ones wait."""
    (keyed,) = store.enqueue([new_job(payload=b"1", key="k", unique="u")])
    assert enqueue(store, b"2").state is S.WAITING
    assert store.payload(keyed.id) == b"1"
    assert run_next(store) == b"1"
    assert run_next(store) == b"2"


def test_who_keeps_gets_the_job_that_is_there(store, clock):
    """Whether that runs or not: nothing is changed, and nothing waits."""
    first = enqueue(store, b"1")
    (kept,) = store.enqueue([new_job(payload=b"2", unique="u")])
    assert (kept.id, kept.created, kept.replaced) == (first.id, False, False)
    lease_one(store)
    (kept,) = store.enqueue([new_job(payload=b"2", unique="u")])
    assert (kept.id, kept.state) == (first.id, S.LEASED)
    assert store.count(Filter()) == 1


def test_until_start_the_text_is_free_once_it_is_leased(store, clock):
    """A new job beside the running one; but no second one that has not begun."""
    first = enqueue(store, b"1", UNTIL_START)
    assert enqueue(store, b"2", UNTIL_START).id == first.id
    running = lease_one(store)
    assert running.payload == b"1"
    shown = store.get(first.id)
    assert (shown.unique, shown.until_start, shown.followed_by) == ("u", True, None)
    second = enqueue(store, b"2", UNTIL_START)
    assert told(second) == (True, False, False, S.RUNNABLE)
    assert enqueue(store, b"3", UNTIL_START).id == second.id
    assert run_next(store) == b"2"
    store.settle([ended(running, retry_in_s=0.0)])
    clock.advance(1)
    assert run_next(store) == b"1"


def test_until_start_and_replace_leave_one_job_that_has_not_begun(store):
    both = Debounce(OnConflict.REPLACE, until_start=True)
    first = enqueue(store, b"1", both)
    lease_one(store)
    second = enqueue(store, b"2", both)
    assert second.created
    assert told(enqueue(store, b"3", both)) == (False, True, False, S.RUNNABLE)
    assert second.id != first.id
    assert run_next(store) == b"3"


def test_how_long_a_text_is_taken_is_the_last_enqueues_word(store):
    first = enqueue(store, b"1", UNTIL_START)
    enqueue(store, b"2", REPLACE)
    assert not store.get(first.id).until_start
    lease_one(store)
    assert enqueue(store, b"3", UNTIL_START).id == first.id


def test_a_job_that_waits_is_unfinished_and_neither_due_nor_late(store, clock):
    """It counts, does not expire while it waits, and can be found and canceled."""
    granted = begun(store, clock)
    second = enqueue(store, b"2", expires_in_ms=1000)
    clock.advance(2)
    assert lease(store) == ()
    assert store.due({"cpu": ("shop.thumbnail",)}, 9) == {"cpu": 0}
    assert [one.id for one in store.find(Filter(states=(S.WAITING,)))] == [second.id]
    assert {row.state: row.jobs for row in store.stats()} == {"leased": 1, "waiting": 1}
    assert sum(row.due + row.later for row in store.unfinished()) == 2
    assert store.cancel([second.id]) == 1
    assert store.get(second.id).state is S.CANCELED
    assert enqueue(store, b"3").created
    store.settle([succeeded(granted)])
    assert run_next(store) == b"3"
    assert store.revive([second.id], (S.CANCELED,)) == 1
    assert enqueue(store, b"4").id == second.id
    assert run_next(store) == b"4"


def test_a_running_job_and_what_waits_for_it_are_canceled_together(store, clock):
    granted = begun(store, clock)
    store.settle([ended(granted, retry_in_s=60.0)])
    second = enqueue(store, b"2")
    assert store.cancel([granted.id, second.id]) == 2
    assert store.count(Filter(states=(S.CANCELED,))) == 2
    assert enqueue(store, b"3").state is S.RUNNABLE


def test_a_full_queue_is_not_made_fuller_but_can_be_changed(store_factory):
    store = store_factory(admission=Admission(depth_max=1))
    enqueue(store, b"1")
    assert enqueue(store, b"2").replaced
    with pytest.raises(QueueFull):
        store.enqueue([new_job(unique="v", debounce=REPLACE)])


def test_one_call_is_as_many_one_after_another(store):
    """Also mixed with others, and with texts of their own."""
    plain = new_job(payload=b"p")
    stored = store.enqueue(
        [
            job(b"1"),
            plain,
            new_job(payload=b"v", unique="v", debounce=REPLACE),
            job(b"2"),
            new_job(payload=b"k", unique="u"),
            job(b"3", POSTPONE, delay_ms=1000),
        ]
    )
    assert len({one.id for one in stored}) == 3
    assert [one.created for one in stored] == [True, True, True, False, False, False]
    assert [one.replaced for one in stored] == [False] * 3 + [True, False, True]
    assert store.payload(stored[0].id) == b"3"
    assert store.get(stored[0].id).replacements == 2


def test_new_arguments_of_a_misfit_are_tried_at_once(store, clock):
    """Nobody has said of these that they do not fit."""
    enqueue(store, b"1")
    end = misfit(lease_one(store), clock.utc_ms())
    store.settle([end])
    stored = enqueue(store, b"2")
    if stored.created:  # it has ended instead: no other supervisor may know it
        assert stored.state is S.RUNNABLE
        return
    assert store.get(stored.id).unfit_since_ms is None
    assert store.get(stored.id).reason is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"unique": None},
        {"key": "k"},
        {"debounce": Debounce(OnConflict.POSTPONE, postpone_max_ms=-1)},
        {"debounce": "replace"},
    ],
)
def test_what_makes_no_sense_is_refused(store, wrong):
    fields = {"unique": "u", "debounce": REPLACE, **wrong}
    with pytest.raises(UsageError, match=r"debounce|postpone_max_ms"):
        store.enqueue([new_job(**fields)])
    assert store.count(Filter()) == 0


def test_a_late_follower_of_an_expired_job_expires_when_its_turn_comes(store, clock):
    """A lease of another pool leaves it; one of its own cancels it, unbegun."""
    store.enqueue([new_job(unique="u", key="k", expires_in_ms=1)])
    follower = enqueue(store, delay_ms=1000, expires_in_ms=50_000)
    assert follower.state is S.WAITING
    clock.advance(60)
    assert lease(store, pool="io") == ()
    assert store.get(follower.id).state is S.RUNNABLE
    assert lease(store) == ()
    assert store.get(follower.id).state is S.CANCELED
