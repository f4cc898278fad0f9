"""Operators: cancel, revive, pause, resume, prune."""

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import FINISHED, UNFINISHED, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import UsageError
from jobpool.store.records.operating import Filter
from support.store.storing import (
    KINDS,
    begin_run,
    counters,
    ended,
    kind_record,
    lease,
    lease_one,
    make_waiting,
    new_job,
    succeeded,
)

DAY_S = 86400
NOTHING_KEPT = Retention(succeeded_s=0, canceled_s=0, dead_s=0, quarantined_s=0)


def job_in(store, state):
    """Bring a job into a state by the store's own methods; return its id."""
    store.enqueue([new_job("shop.fetch", "io", delay_ms=9 * (state == "pending"))])
    (job,) = store.find(Filter(kind="shop.fetch"), limit=1)
    if state in {JobState.PENDING, JobState.RUNNABLE}:
        return job.id
    if state is JobState.WAITING:
        make_waiting(store, job.id)
        return job.id
    if state is JobState.CANCELED:
        store.cancel([job.id])
        return job.id
    granted = lease_one(store, pool="io")
    assert granted.id == job.id
    if state is JobState.SUCCEEDED:
        store.settle([succeeded(granted)])
    elif state is not JobState.LEASED:
        crashed = ended(granted, Outcome.CRASHED)
        store.settle([msgspec.structs.replace(crashed, state=state)])
    return job.id


@pytest.mark.parametrize("state", list(JobState))
def test_jobs_can_be_brought_into_every_state(store, state):
    """The tests below do use the states that they name."""
    assert store.get(job_in(store, state)).state is state


@pytest.mark.parametrize("state", list(JobState))
def test_cancel_ends_waiting_jobs_at_once_and_running_ones_when_told(
    store, clock, state
):
    """Waiting and quarantined jobs end at once, running ones when they are killed."""
    job_id = job_in(store, state)
    before = store.get(job_id)
    clock.advance(1)
    can_be = state in {*UNFINISHED, JobState.QUARANTINED}
    assert store.cancel([job_id]) == int(can_be)
    job = store.get(job_id)
    if state is JobState.LEASED:
        assert (job.state, job.cancel_requested) == ("leased", True)
    elif can_be:
        assert (job.state, job.finished_at_ms) == ("canceled", clock.utc_ms())
        assert job.reason
    else:
        assert job == before


def test_cancel_counts_each_job_once(store):
    """Unknown ids and repetitions add nothing."""
    first, second = store.enqueue([new_job(), new_job()])
    assert store.cancel([first.id, first.id, second.id, 999, 10**30]) == 2


@pytest.mark.parametrize("state", list(JobState))
def test_revive_brings_back_unsuccessful_jobs(store, clock, state):
    """Only pending, dead, quarantined and canceled jobs come back, due now."""
    job_id = job_in(store, state)
    before = store.get(job_id)
    clock.advance(1)
    can_be = state in {JobState.PENDING, *FINISHED} - {JobState.SUCCEEDED}
    assert store.revive([job_id], list(JobState)) == int(can_be)
    job = store.get(job_id)
    if not can_be:
        assert job == before
        return
    assert (job.state, job.run_at_ms) == ("runnable", clock.utc_ms())
    assert (job.finished_at_ms, counters(job)) == (None, (0, 0, 0, 0))
    assert (job.attempt, job.outcome) == (before.attempt, before.outcome)
    assert lease_one(store, pool="io").id == job_id


def test_revive_takes_only_the_states_named(store):
    """`retry` and `release` mean different jobs."""
    job_id = job_in(store, JobState.QUARANTINED)
    assert store.revive([job_id], [JobState.DEAD, JobState.CANCELED]) == 0
    assert store.revive([job_id], [JobState.QUARANTINED]) == 1


def test_revive_may_give_jobs_a_memory_limit_of_their_own(store):
    """Which their next attempts have; without one it stays as it was."""
    one, other = (job_in(store, JobState.QUARANTINED) for _ in range(2))
    assert store.revive([one], [JobState.QUARANTINED], memory_bytes=2**31) == 1
    assert (store.get(one).memory_bytes, store.get(other).memory_bytes) == (2**31, None)
    assert lease_one(store, pool="io").memory_bytes == 2**31
    store.cancel([one, other])
    assert store.revive([other], [JobState.QUARANTINED, JobState.CANCELED]) == 1
    assert store.get(other).memory_bytes is None


@pytest.mark.parametrize("size", [0, -1, 2**60 + 1, True, 1.5])
def test_revive_refuses_a_limit_that_is_none(store, size):
    """And changes nothing."""
    job_id = job_in(store, JobState.QUARANTINED)
    with pytest.raises(UsageError, match="memory_bytes"):
        store.revive([job_id], [JobState.QUARANTINED], size)
    assert store.get(job_id).state is JobState.QUARANTINED


def test_find_can_be_kept_between_ids(store):
    """Above one and below another, however large they are."""
    store.enqueue([new_job() for _ in range(5)])

    def found(**given):
        return [job.id for job in store.find(Filter(), **given)]

    assert found(after_id=2) == [5, 4, 3]
    assert found(after_id=1, before_id=4) == [3, 2]
    assert found(after_id=1, before_id=4, limit=1) == [3]
    assert found(after_id=5) == found(after_id=2**70) == []
    assert found(after_id=-9) == [5, 4, 3, 2, 1]
    assert [j.id for j in store.find(Filter(ids=(1, 3, 5)), after_id=1)] == [5, 3]


def test_revived_jobs_do_not_expire_again(store, clock):
    """They were requested again."""
    (answer,) = store.enqueue([new_job(expires_in_ms=1000)])
    clock.advance(2)
    assert lease(store) == ()
    assert store.revive([answer.id], [JobState.CANCELED]) == 1
    assert lease_one(store).id == answer.id


def test_revive_skips_a_job_whose_unique_text_is_taken(store):
    """The call's other jobs do come back."""
    (first,) = store.enqueue([new_job(unique="cat")])
    store.cancel([first.id])
    (second,) = store.enqueue([new_job(unique="cat")])
    store.cancel([second.id])
    (other,) = store.enqueue([new_job()])
    store.cancel([other.id])
    ids = [first.id, second.id, other.id]
    assert store.revive(ids, [JobState.CANCELED]) == 2
    states = sorted(store.get(job_id).state for job_id in ids[:2])
    assert states == ["canceled", "runnable"]


def test_pause_and_resume_say_whether_they_changed_anything(store):
    """And `paused` lists what is paused."""
    assert store.pause(pool="cpu")
    assert not store.pause(pool="cpu")
    assert store.pause(kind="cpu")
    assert store.paused() == [("kind", "cpu"), ("pool", "cpu")]
    assert store.resume(pool="cpu")
    assert not store.resume(pool="cpu")
    assert store.paused() == [("kind", "cpu")]


@pytest.mark.parametrize(
    "what",
    [
        {},
        {"pool": ""},
        {"pool": "a", "kind": "b"},
        {"tenant": "a", "quota": "b"},
        {"quota": "a", "whole_store": True},
    ],
)
def test_pause_takes_one_thing(store, what):
    """Neither none nor two."""
    with pytest.raises(UsageError, match="either a pool, a kind, a tenant or a quota"):
        store.pause(**what)
    with pytest.raises(UsageError, match="either a pool, a kind, a tenant or a quota"):
        store.resume(**what)


def test_a_pause_has_an_end_a_name_and_a_reason(store, clock):
    """As last said: without a note, the one that there is stays."""
    assert store.pause(pool="io")
    assert not store.pause(pool="io", who="bob")
    (pause,) = store.pauses()
    assert (pause.who, pause.note, pause.until_ms) == (None, None, None)
    assert pause.since_ms == clock.utc_ms()
    clock.advance(1)
    assert store.pause(pool="io", for_s=600.5, who="ann", note="vendor\0down")
    (pause,) = store.pauses()
    assert (pause.what, pause.name, pause.who) == ("pool", "io", "ann")
    assert pause.note.startswith("vendor")
    assert pause.since_ms == clock.utc_ms()
    assert pause.until_ms == clock.utc_ms() + 600_500
    assert store.pause(pool="io", who="ann", note="for good")
    assert not store.pause(pool="io", who="bob", note="for good")
    assert not store.pause(pool="io", who="bob")
    assert [(p.who, p.note, p.until_ms) for p in store.pauses()] == [
        ("ann", "for good", None)
    ]


@pytest.mark.parametrize("what", [{"pool": "cpu"}, {"kind": "shop.thumbnail"}])
def test_a_pause_that_has_ended_counts_for_nothing(store, clock, what):
    """At once, by the store's clock: nobody need tidy up first."""
    (first, *_) = store.enqueue([new_job(), new_job(delay_ms=1)])
    store.pause(**what, for_s=60, who="ann")
    clock.advance(59.999)
    assert lease(store) == ()
    assert store.due(KINDS, 9) == {"cpu": 0, "io": 0}
    assert [row.paused for row in store.waiting()] == [True]
    clock.advance(0.001)
    assert store.paused() == store.pauses() == []
    assert [row.paused for row in store.waiting()] == [False]
    assert store.due(KINDS, 9) == {"cpu": 2, "io": 0}
    assert not store.resume(**what)
    assert lease_one(store).id == first.id
    assert store.pause(**what)
    assert lease(store) == ()


def test_a_suspect_is_held_until_the_pause_ends(store, clock):
    """It is leased by a statement of its own."""
    store.enqueue([new_job()])
    granted = lease_one(store)
    store.settle([ended(granted, Outcome.LOST, suspect=True)])
    store.pause(pool="cpu", for_s=60)
    clock.advance(59)
    assert lease(store) == ()
    clock.advance(1)
    assert lease_one(store).suspect


def test_ended_pauses_are_pruned(store, clock):
    """An older supervisor beside us, which knows no ends, goes on after that."""
    store.pause(pool="cpu", for_s=60)
    store.pause(pool="io", for_s=61)
    clock.advance(60)
    store.prune(Retention())
    clock.advance(-30)
    assert store.paused() == [("pool", "io")]


@pytest.mark.parametrize("for_s", [0, -1, float("nan"), float("inf")])
def test_a_pause_that_ends_at_once_or_never_is_refused(store, for_s):
    """It would say that it did something."""
    with pytest.raises(UsageError, match="nothing was paused"):
        store.pause(pool="cpu", for_s=for_s)
    assert store.paused() == []


@pytest.mark.parametrize("state", list(JobState))
def test_prune_deletes_finished_jobs_older_than_their_retention(store, clock, state):
    """With everything that belongs to them; unfinished ones are never old."""
    job_id = job_in(store, state)
    assert store.prune(NOTHING_KEPT) == 0  # Not older than 0 seconds yet.
    clock.advance(100 * DAY_S)
    kept = Retention(
        **{f"{name}_s": None if name is state else 0.0 for name in FINISHED}
    )
    assert store.prune(kept) == 0
    assert store.prune(NOTHING_KEPT) == int(state in FINISHED)
    assert (store.get(job_id) is None) == (state in FINISHED)
    if state in FINISHED:
        assert store.payload(job_id) is None
        assert store.attempts(job_id) == []


def test_retention_counts_from_the_end_and_depends_on_the_state(store, clock):
    """The usual retention: a week, half a year, forever."""
    jobs = {state: job_in(store, state) for state in FINISHED}
    clock.advance(7 * DAY_S + 1)
    assert store.prune(Retention()) == 2
    clock.advance(173 * DAY_S)
    assert store.prune(Retention()) == 1
    clock.advance(10_000 * DAY_S)
    assert store.prune(Retention()) == 0
    assert [job.id for job in store.find(Filter())] == [jobs[JobState.QUARANTINED]]


def test_prune_is_bounded(store, clock):
    """At most so many in one transaction, over all states."""
    store.cancel([answer.id for answer in store.enqueue([new_job()] * 25)])
    for granted in [lease_one(store) for _ in store.enqueue([new_job()] * 5)]:
        store.settle([succeeded(granted)])
    clock.advance(1)
    assert [store.prune(NOTHING_KEPT, 10) for _ in range(4)] == [10, 10, 10, 0]


def test_ids_and_keys_after_a_prune(store, clock):
    """A pruned key is free again; an id is never given twice."""
    (first,) = store.enqueue([new_job(key="k")])
    store.cancel([first.id])
    clock.advance(1)
    assert store.prune(NOTHING_KEPT) == 1
    (second,) = store.enqueue([new_job(key="k", payload=b"other")])
    assert second.created
    assert second.id > first.id


def test_runs_are_pruned_a_day_after_their_end(store, clock):
    """A supervisor that restarts every minute leaves no pile of rows behind."""
    begin_run(store, "run-2")
    store.end_run("run-2")
    clock.advance(DAY_S)
    store.prune(Retention())
    with pytest.raises(UsageError):
        begin_run(store, "run-2")
    clock.advance(0.001)
    store.prune(Retention())
    begin_run(store, "run-2")  # Would be refused, were it still known as ended.
    assert [run.id for run in store.open_runs()] == ["run-1", "run-2"]


def test_kinds_of_an_ended_run_are_pruned_ten_minutes_after_its_end(store, clock):
    """If a newer one has published them: what dies every few seconds leaves no pile."""
    begin_run(store, "run-2", [kind_record(at_most_once=("a",)), kind_record("b")])
    store.end_run("run-2")
    clock.advance(1)
    begin_run(store, "run-3", [kind_record()])

    def pruned():
        store.prune(Retention())
        return {one.kind: one.at_most_once for one in store.kinds()}

    clock.advance(599)
    assert pruned() == {"shop.thumbnail": ("a",), "b": ()}
    clock.advance(0.001)
    assert pruned() == {"shop.thumbnail": (), "b": ()}


def test_a_prune_of_at_most_none_deletes_none(store, clock):
    """The limit is the caller's, however old the jobs are."""
    store.enqueue([new_job()] * 2)
    store.settle([succeeded(granted) for granted in lease(store)])
    clock.advance(8 * DAY_S)
    assert store.prune(Retention(), limit=0) == 0
    assert store.prune(Retention(), limit=1) == 1
    assert store.count(Filter()) == 1


def test_a_prune_deletes_a_thousand_by_default(store, clock):
    """Many jobs that end together do not block other writers."""
    made = store.enqueue([new_job()] * 1001)
    store.cancel([one.id for one in made])
    clock.advance(8 * DAY_S)
    assert store.prune(Retention()) == 1000
    assert store.prune(Retention()) == 1


@pytest.mark.parametrize("state", FINISHED)
def test_a_job_is_kept_to_the_last_millisecond(store, clock, state):
    """Its own state's retention counts, whatever the others are. None: forever."""
    job_id = job_in(store, state)
    others = {f"{other}_s": 0.0 for other in FINISHED if other is not state}
    kept = Retention(**others, **{f"{state}_s": 3600.5})
    clock.advance(3600.5)
    assert store.prune(kept) == 0
    clock.advance(0.001)
    assert store.prune(Retention(**others, **{f"{state}_s": None})) == 0
    assert store.prune(kept, limit=0) == 0
    assert store.prune(kept) == 1
    assert store.get(job_id) is None


def test_a_prune_is_bounded_over_all_states(store, clock):
    """The limit is not applied per state."""
    for state in (*FINISHED, *FINISHED):
        job_in(store, state)
    clock.advance(DAY_S)
    kept = Retention(**{f"{state}_s": 0.0 for state in FINISHED})
    assert store.prune(kept, limit=3) == 3
    assert [store.prune(kept, limit=1) for _ in range(6)] == [1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize("state", FINISHED)
def test_a_bounded_prune_deletes_the_oldest_of_each_state_first(store, clock, state):
    """The oldest first."""
    ids = []
    for _ in range(3):
        ids.append(job_in(store, state))
        clock.advance(1)
    kept = Retention(**{f"{state}_s": 0.0})
    for job_id in ids:
        assert store.prune(kept, limit=1) == 1
        assert store.get(job_id) is None


@pytest.mark.parametrize("state", FINISHED)
def test_a_prune_keeps_as_many_as_are_to_be_kept(store, clock, state):
    """The newest, of this state alone, however old; never fewer."""
    ids = []
    for _ in range(5):
        ids.append(job_in(store, state))
        clock.advance(1)
    others = [job_in(store, other) for other in FINISHED if other is not state]
    forever = {f"{name}_s": None for name in FINISHED}
    kept = Retention(**forever, **{f"{state}_count": 2})
    assert [store.prune(kept, limit=n) for n in (0, 1, 1, 1, 1)] == [0, 1, 1, 1, 0]
    assert [job.id for job in store.find(Filter(states=(state,)))] == [ids[4], ids[3]]
    assert all(store.get(job_id) for job_id in others)
    store.prune(Retention(**forever, **{f"{state}_count": 3}))
    assert store.count(Filter(states=(state,))) == 2


def test_a_prune_by_age_and_count_deletes_what_either_would(store, clock):
    """Each job counts once, within the limit for all."""
    for _ in range(6):
        job_in(store, JobState.DEAD)
        clock.advance(10)
    young = Retention(succeeded_s=0.0, dead_s=35.0, dead_count=5)
    many = Retention(dead_s=35.0, dead_count=1)
    assert [store.prune(young, limit=2) for _ in range(3)] == [2, 1, 0]
    assert store.prune(many, limit=5) == 2
    assert store.count(Filter(states=(JobState.DEAD,))) == 1


def test_jobs_that_ended_together_are_kept_to_the_count(store):
    """The ids decide nothing; the number does."""
    store.cancel([one.id for one in store.enqueue([new_job()] * 7)])
    kept = Retention(canceled_count=3)
    assert [store.prune(kept, limit=3) for _ in range(3)] == [3, 1, 0]
    assert store.count(Filter(states=(JobState.CANCELED,))) == 3


def test_a_revived_job_no_longer_counts(store, clock):
    """What is left is not more than is to be kept."""
    ids = []
    for _ in range(3):
        ids.append(job_in(store, JobState.DEAD))
        clock.advance(1)
    store.revive(ids[2:], [JobState.DEAD])
    assert store.prune(Retention(dead_count=2)) == 0


def test_a_runs_published_kinds_stay_while_it_lives(store, clock):
    """However old a later publication is, and whichever other run has ended."""
    begin_run(store, "run-1", [kind_record(timeout_s=1.0)])
    begin_run(store, "run-3")
    store.end_run("run-3")
    clock.advance(1)
    begin_run(store, "run-2", [kind_record(timeout_s=2.0)])
    clock.advance(2 * DAY_S)
    store.prune(Retention())
    assert [one.timeout_s for one in store.kinds()] == [2.0]
    begin_run(store, "run-2")
    assert [one.timeout_s for one in store.kinds()] == [1.0]
