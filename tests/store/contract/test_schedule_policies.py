"""What a schedule's policy says, step by step. Every store asks `plan`: two will do."""

import random

import pytest

from jobpool.core.jobs.job import UNFINISHED, JobState
from jobpool.core.rules.admission import Admission
from jobpool.core.rules.schedules import plan as planning
from jobpool.core.rules.schedules.policy import Overlap
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.errors import ConfigError
from jobpool.store.operations.schedules import step as stepping
from jobpool.store.records.operating import Filter
from support.store.scheduling import (
    MINUTE_MS,
    fail_one,
    put,
    run_one,
    states,
)
from support.store.storing import begin_run, ended, lease, lease_one, new_job, succeeded

ENGINES = ["sqlite", "memory"]
STEPS_MAX = 50
"""After so many steps in a row nothing is due, or they do nothing for ever."""


def test_the_next_tick_follows_the_last_one_not_the_step(store, clock):
    """A step that comes late does not move what follows."""
    put(store)
    start_ms = clock.utc_ms()
    clock.advance(97)
    store.tick()
    (row,) = store.schedules()
    assert (row.last_ms, row.next_ms) == (start_ms + 60_000, start_ms + 120_000)


def test_a_clock_that_goes_back_makes_no_tick_again(store, clock):
    """A tick is unique by its nominal time."""
    put(store, overlap=Overlap.ALLOW_ALL)
    clock.advance(60)
    assert store.tick().enqueued == 1
    clock.advance(-30)
    assert store.tick().enqueued == 0
    clock.advance(30)
    assert store.tick().enqueued == 0
    clock.advance(60)
    assert store.tick().enqueued == 1


def test_overlap_skip_counts_what_is_unfinished(store, clock):
    """A job that has ended is none; the tick says that it was skipped."""
    put(store)
    clock.advance(60)
    assert store.tick().enqueued == 1
    granted = lease_one(store)
    clock.advance(60)
    assert (store.tick().enqueued, states(store)[-1]) == (0, TickState.SKIPPED)
    store.settle([succeeded(granted)])
    clock.advance(60)
    assert store.tick().enqueued == 1
    assert states(store) == [TickState.DONE, TickState.SKIPPED, TickState.OPEN]


@pytest.mark.parametrize(
    ("overlap", "waiting"), [(Overlap.BUFFER_ONE, 1), (Overlap.BUFFER_ALL, 3)]
)
def test_buffered_ticks_begin_one_step_after_the_end(store, clock, overlap, waiting):
    """Oldest first, one at a time."""
    put(store, overlap=overlap)
    clock.advance(60)
    store.tick()
    for _ in range(3):
        clock.advance(60)
        assert store.tick().enqueued == 0
    assert states(store).count(TickState.BUFFERED) == waiting
    for left in range(waiting, 0, -1):
        assert store.tick().next_due_in_s == 1.0
        run_one(store)
        assert store.tick().enqueued == 1
        assert states(store).count(TickState.BUFFERED) == left - 1


def test_retry_over_tick_keeps_a_waiting_retry(store, clock):
    """It counts as running, then."""
    put(store, retry_over_tick=True)
    clock.advance(60)
    store.tick()
    failed = fail_one(store, clock)
    clock.advance(60)
    assert (store.tick().enqueued, states(store)[-1]) == (0, TickState.SKIPPED)
    assert store.get(failed.id).state is JobState.PENDING


def test_from_end_counts_from_the_end_of_the_last_job(store, clock):
    """Nothing is due while it runs."""
    put(store, rule=Rule(every_ms=MINUTE_MS, from_end=True))
    clock.advance(60)
    store.tick()
    granted = lease_one(store)
    clock.advance(600)
    assert store.tick().enqueued == 0
    store.settle([succeeded(granted)])
    assert store.tick().next_due_in_s == 60.0
    clock.advance(60)
    assert store.tick().enqueued == 1


def test_pause_on_dead_pauses_with_a_note(store, clock):
    """One step after its job is dead, not only at its next tick."""
    put(store, pause_on_dead=True)
    clock.advance(60)
    store.tick()
    granted = lease_one(store)
    store.settle([ended(granted, give_up=True)])
    (notice,) = store.tick().notices
    (row,) = store.schedules()
    assert notice.paused == row.note == f"its job {granted.id} is dead"
    assert (row.paused_ms, row.paused_by) == (clock.utc_ms(), "jobpool")
    clock.advance(601)
    assert store.tick().enqueued == 0
    assert store.resume_schedule("poll")
    store.tick()
    clock.advance(60)
    assert store.tick().enqueued == 1


def test_missed_ticks_are_counted_and_told(store, clock):
    """And so is how late the one is that makes up for them."""
    put(store)
    clock.advance(600)
    stepped = store.tick()
    assert (stepped.enqueued, stepped.missed) == (1, 8)
    clock.advance(1200)
    run_one(store)
    (notice,) = store.tick().notices
    assert (notice.name, notice.missed, notice.late_ms) == ("poll", 18, 0)
    (row,) = store.schedules()
    assert row.missed == 26


def test_all_that_was_missed_is_back_filled_in_turn(store, clock):
    """Within the window, after what is due now; each lease says so."""
    put(store, missed="all", catchup_window_s=300)
    clock.advance(600)
    store.tick()
    seen = []
    for more in (1, 1, 1, 1, 0):
        seen.append(run_one(store).schedule)
        assert store.tick().enqueued == more
    times = [one.nominal_ms for one in seen if one.backfilled]
    assert len(times) == 4
    assert times == sorted(times)


def test_a_full_queue_refuses_no_tick(store_factory, clock):
    """Ticks are bounded by themselves."""
    store = store_factory(admission=Admission(depth_max=1))
    begin_run(store)
    store.enqueue([new_job()])
    put(store, "a", "b")
    clock.advance(60)
    assert store.tick().enqueued == 2


def test_a_step_that_is_rolled_back_has_done_nothing(store, clock):
    """Whoever makes it again does all of it, once."""
    put(store, "a", "b")
    clock.advance(60)

    def die():
        with store.transaction():
            assert store.tick().enqueued == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        die()
    assert (store.find(Filter()), store.ticks("a")) == ([], [])
    assert store.tick().enqueued == 2
    assert store.tick().enqueued == 0


def test_a_schedule_that_this_host_cannot_plan_is_left_to_others(
    store, clock, monkeypatch
):
    """They have three seconds. It stops no other one, and says why."""

    def plan(state, now_ms, *, limit):
        if state.name == "b":
            raise ConfigError("tz 'Mars/Base' is unknown here")
        return planning.plan(state, now_ms, limit=limit)

    put(store, "a", "b", "c")
    clock.advance(60)
    with monkeypatch.context() as patched:
        patched.setattr(stepping, "plan", plan)
        taken = store.tick()
        assert (taken.enqueued, store.tick().next_due_in_s) == (2, 1.0)
        assert store.schedules("b")[0].next_ms == clock.utc_ms()
        clock.advance(3)
        stepped = store.tick()
    assert (stepped.enqueued, stepped.next_due_in_s) == (0, 10.0)
    assert [one.unplanned for one in stepped.notices] == [
        "tz 'Mars/Base' is unknown here"
    ]
    clock.advance(10)
    assert store.tick().enqueued == 1


@pytest.mark.parametrize("seed", range(4))
def test_each_time_of_a_rule_has_one_tick_or_was_missed(store, clock, seed):
    """Whatever is done, however late the steps are, and if clocks are set back."""
    dice = random.Random(seed)
    overlap = dice.choice(list(Overlap))
    missed = dice.choice(["skip", "one", "all"])
    put(store, overlap=overlap, missed=missed, catchup_max=3)
    for _ in range(30):
        clock.advance(dice.choice([0.2, 1, 20, 60, 61, 130, 1000]))
        if dice.random() < 0.1:
            clock.advance(-dice.choice([0.5, 0.9]))
        assert any(store.tick().next_due_in_s for _ in range(STEPS_MAX))
        for granted in lease(store, limit=dice.randint(0, 3)):
            end = dice.choice([succeeded, ended])
            store.settle([end(granted)])
    (row,) = store.schedules()
    times = [tick.nominal_ms for tick in store.ticks("poll", 10_000)]
    assert {(at_ms - row.since_ms) % MINUTE_MS for at_ms in times} == {0}
    assert len(times) == len(set(times))
    passed = (row.last_ms - row.since_ms) // MINUTE_MS
    assert len(times) + row.missed == passed > 0
    jobs = [tick.job_id for tick in store.ticks("poll", 10_000) if tick.job_id]
    assert len(jobs) == len(set(jobs)) == store.count(Filter())
    if overlap is not Overlap.ALLOW_ALL:
        assert store.count(Filter(states=UNFINISHED)) <= 1
