"""Steps of schedules: each tick gets its job once, when its policy says so."""

import msgspec

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import JobState, Scheduled
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.schedules.policy import Overlap
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.store.records.operating import Filter, Replay
from jobpool.store.records.schedules import JobTick
from support.store.scheduling import (
    DAILY,
    MINUTE_MS,
    YEAR_S,
    declared,
    fail_one,
    put,
    run_one,
    states,
)
from support.store.storing import ended, lease, lease_one, new_job, succeeded


def test_a_tick_is_stored_with_its_job_when_it_is_due(store, clock):
    """Not before; and the job is what was declared."""
    of = {"priority": 3, "tenant": "acme", "max_attempts": 2, "timeout_s": 9.0}
    put(store, of=of)
    clock.advance(59.999)
    waits = store.tick()
    assert (waits.enqueued, round(waits.next_due_in_s, 3)) == (0, 0.001)
    clock.advance(0.001)
    assert store.tick().enqueued == 1
    (job,) = store.find(Filter())
    assert (job.kind, job.pool, job.priority, job.tenant) == (
        *("shop.thumbnail", "cpu", 3, "acme"),
    )
    assert (job.max_attempts, job.timeout_s, job.state) == (2, 9.0, JobState.RUNNABLE)
    assert store.payload(job.id) == b'{"n":1}'
    (tick,) = store.ticks("poll")
    assert (tick.state, tick.job_id, tick.job_state) == (
        *(TickState.OPEN, job.id, JobState.RUNNABLE),
    )


def test_each_tick_is_enqueued_once_whoever_steps(store, store_factory, clock):
    """Of two supervisors either one makes the step, and neither of them two jobs."""
    other = store_factory()
    put(store, "a", "b")
    for step in range(4):
        clock.advance(60)
        first, second = (store, other) if step % 2 else (other, store)
        assert (first.tick().enqueued, second.tick().enqueued) == (2, 0)
        for granted in lease(store):
            store.settle([succeeded(granted)])
    assert len(store.find(Filter())) == 8


def test_a_clock_that_had_jumped_silences_no_schedule(store, clock):
    """What it has planned is planned again, and goes on from now."""
    put(store, overlap=Overlap.ALLOW_ALL)
    store.put_schedule(declared("nightly", DAILY))
    clock.advance(YEAR_S)
    store.tick()
    clock.advance(-YEAR_S)
    assert store.tick().next_due_in_s <= 60
    clock.advance(60)
    assert store.tick().enqueued == 1
    clock.advance(86400)
    assert store.tick().enqueued == 2


def test_a_time_that_comes_again_cancels_no_job_of_its_own(store, clock):
    """A clock that goes back by seconds, as NTP sets it: its tick is there already."""
    put(store, "newest", overlap=Overlap.CANCEL_OTHER)
    put(store, "retried")
    clock.advance(60)
    assert store.tick().enqueued == 2
    for granted in lease(store):
        store.settle([ended(granted, now_ms=clock.utc_ms())])
    for seconds in (-3, 3):
        clock.advance(seconds)
        stepped = store.tick()
        assert (stepped.canceled, stepped.enqueued, stepped.buffered) == (0, 0, 0)
    assert {job.state for job in store.find(Filter())} == {JobState.PENDING}


def test_overlap_cancel_other_asks_what_runs_to_stop(store, clock):
    """The tick gets its job when that has ended."""
    put(store, overlap=Overlap.CANCEL_OTHER)
    clock.advance(60)
    store.tick()
    granted = lease_one(store)
    clock.advance(60)
    stepped = store.tick()
    assert (stepped.canceled, stepped.enqueued, stepped.buffered) == (1, 0, 1)
    assert store.cancel_requests("run-1") == [granted.token]
    store.settle([ended(granted, Outcome.CANCELED)])
    assert store.tick().enqueued == 1
    clock.advance(60)
    stepped = store.tick()
    assert (stepped.canceled, stepped.next_due_in_s) == (1, 0.0)
    assert store.tick().enqueued == 1
    assert [job.state for job in store.find(Filter())] == [
        *(JobState.RUNNABLE, JobState.CANCELED, JobState.CANCELED)
    ]


def test_a_tick_replaces_a_waiting_retry(store, clock):
    """It is canceled and says why; unless the retry is to be kept."""
    put(store, "a")
    clock.advance(60)
    store.tick()
    failed = fail_one(store, clock)
    assert store.get(failed.id).state is JobState.PENDING
    clock.advance(60)
    stepped = store.tick()
    assert (stepped.enqueued, stepped.canceled) == (1, 1)
    job = store.get(failed.id)
    assert (job.state, job.reason) == (
        *(JobState.CANCELED, "canceled for a later tick of its schedule"),
    )


def test_a_tick_that_waits_begins_when_what_runs_must_be_retried(store, clock):
    """The retry's place is taken at the next step, not at the next tick."""
    put(store, overlap=Overlap.BUFFER_ONE)
    clock.advance(60)
    store.tick()
    granted = lease_one(store)
    clock.advance(60)
    assert store.tick().buffered == 1
    store.settle([ended(granted, now_ms=clock.utc_ms())])
    assert store.tick().enqueued == 1
    assert store.get(granted.id).state is JobState.CANCELED


def test_a_lease_says_which_tick_it_is(store, clock):
    """By its nominal time, however late; other jobs are no ticks."""
    rule = Rule(every_ms=MINUTE_MS, tz="Europe/Berlin", jitter_ms=30_000)
    put(store, rule=rule)
    start_ms = clock.utc_ms()
    (row,) = store.schedules()
    jitter_ms = row.next_ms - start_ms - MINUTE_MS
    assert 0 < jitter_ms < 30_000
    clock.advance(100)
    store.tick()
    store.enqueue([new_job()])
    plain, tick = sorted(lease(store), key=lambda one: one.schedule is not None)
    assert plain.schedule is None
    assert tick.schedule == Scheduled(
        "poll", start_ms + MINUTE_MS, "Europe/Berlin", 40_000 - jitter_ms
    )


def test_a_job_is_known_to_be_of_a_tick_while_that_is_there(store, clock):
    """Of which one, and whether it was backfilled; the zone is the schedule's."""
    store.enqueue([new_job()])
    plain = run_one(store)
    put(store, rule=Rule(every_ms=MINUTE_MS, tz="Europe/Berlin"))
    clock.advance(60)
    store.tick()
    first, now_ms = run_one(store), clock.utc_ms()
    past_ms = now_ms - MINUTE_MS
    store.backfill("poll", past_ms, past_ms)
    store.tick()
    past = run_one(store)
    ids = (first.id, past.id, plain.id, 0, 2**70)
    assert [store.tick_of(one) for one in ids] == [
        JobTick("poll", now_ms, "Europe/Berlin"),
        JobTick("poll", past_ms, "Europe/Berlin", backfilled=True),
        *[None] * 3,
    ]
    store.remove_schedule("poll")
    assert [store.tick_of(one) for one in ids] == [None] * 5


def test_a_step_handles_so_many_schedules_and_says_that_there_are_more(store, clock):
    """The longest due first."""
    put(store, "c", every_ms=59_000)
    put(store, "a", "b")
    clock.advance(60)
    assert (store.tick(2).enqueued, store.tick(0).next_due_in_s) == (2, 1.0)
    assert len(store.ticks("c")) == 1
    assert store.tick(2).enqueued == 1


def test_old_ticks_go_with_their_jobs_but_the_last_one_stays(store, clock):
    """It goes on saying how its job has ended; skipped ones go by themselves."""
    put(store)
    for _ in range(3):
        clock.advance(60)
        store.tick()
        run_one(store)
    assert store.prune(Retention(succeeded_s=-1.0)) == 3
    (last,) = store.ticks("poll")
    assert (last.state, last.job_state) == (TickState.DONE, JobState.SUCCEEDED)
    clock.advance(60)
    assert store.tick().enqueued == 1
    clock.advance(60)
    store.tick()
    clock.advance(60)
    store.tick()
    store.prune(Retention(canceled_s=-1.0))
    assert states(store) == [TickState.DONE, TickState.OPEN, TickState.SKIPPED]


def test_a_tick_whose_end_nobody_saw_holds_up_no_other(store, clock):
    """Its job was pruned as soon as it had ended, by whoever keeps none."""
    put(store, "rests", rule=Rule(every_ms=2 * MINUTE_MS, from_end=True))
    put(store, "waits", every_ms=4 * MINUTE_MS, overlap=Overlap.BUFFER_ONE)
    for expected in ((1, 0), (1, 0), (0, 0), (0, 1)):
        clock.advance(120)
        stepped = store.tick()
        assert (stepped.enqueued, stepped.buffered) == expected
    for granted in lease(store):
        store.settle([succeeded(granted)])
    store.prune(Retention(succeeded_s=-1.0))
    assert store.tick().enqueued == 1
    assert states(store, "waits") == [TickState.OPEN]
    clock.advance(120)
    assert store.tick().enqueued == 1
    assert states(store, "rests") == [TickState.DONE, TickState.OPEN]


def test_a_job_that_replaces_a_ticks_job_takes_the_tick_over(store, clock):
    """It is told of it, and counts as it; the old job can be pruned."""
    put(store)
    clock.advance(60)
    store.tick()
    old = lease_one(store)
    store.settle([ended(old, give_up=True)])
    clock.advance(1)
    store.tick()
    replay = Replay(job_id=old.id, new=new_job(payload=b'{"n":2}'))
    (new_id,) = store.replay([replay])
    assert store.tick_of(old.id) is None
    assert store.tick_of(new_id).schedule == "poll"
    store.prune(Retention(dead_s=-1.0))
    assert store.get(old.id) is None
    granted = lease_one(store)
    assert granted.id == new_id
    assert granted.schedule == msgspec.structs.replace(old.schedule, late_ms=1000)
    clock.advance(60)
    assert (store.tick().enqueued, states(store)[-1]) == (0, TickState.SKIPPED)
    assert store.ticks("poll")[1].job_id == new_id


def test_a_revived_job_counts_as_its_tick_again(store, clock):
    """Otherwise two would run at once."""
    put(store)
    clock.advance(60)
    store.tick()
    granted = lease_one(store)
    store.settle([ended(granted, give_up=True)])
    clock.advance(60)
    store.tick()
    run_one(store)
    store.revive([granted.id], [JobState.DEAD])
    assert lease_one(store).id == granted.id
    clock.advance(60)
    assert (store.tick().enqueued, states(store)[-1]) == (0, TickState.SKIPPED)
