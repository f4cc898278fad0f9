"""Suspects, deaths of supervisors, and kinds that crash, in every store."""

import msgspec
import pytest

from jobpool.core.breaker import BreakerState, Saved
from jobpool.core.job import JobState
from jobpool.core.lifecycle import hand_back
from jobpool.core.outcome import Outcome
from jobpool.core.settings import Retention
from jobpool.core.suspicion import DEATHS_WITHIN_S, Deaths
from storing import KINDS, begin_run, ended, lease, new_job, succeeded

_replace = msgspec.structs.replace


def accuse(store, count=1, run_id="run-1", **options):
    """Store jobs, lease them, and lose them such that they are suspects."""
    made = store.enqueue([new_job(**options) for _ in range(count)])
    held = {one.id: one for one in lease(store, run_id)}
    store.settle(
        [_replace(ended(held[one.id], Outcome.LOST), suspect=True) for one in made]
    )
    return [one.id for one in made]


def grant(store, run_id="run-1", cpu=10, **options):
    return store.lease(run_id, {"cpu": cpu, "io": 10}, KINDS, **options)


def test_one_suspect_at_a_time_is_granted_and_comes_first(store):
    """Beside any number of others; the second one when the first one is back."""
    first, second = accuse(store, 2)
    plain = [one.id for one in store.enqueue([new_job(priority=9)] * 3)]
    batch = grant(store, cpu=2)
    assert [one.id for one in batch.leases] == [first, plain[0]]
    assert [one.suspect for one in batch.leases] == [True, False]
    assert batch.suspects_wait
    assert [one.id for one in grant(store).leases] == plain[1:]
    assert grant(store).suspects_wait
    store.settle([_replace(succeeded(batch.leases[0]), suspect=False)])
    again = grant(store)
    assert [(one.id, one.suspect) for one in again.leases] == [(second, True)]
    assert not again.suspects_wait


def test_no_other_supervisor_gets_one_meanwhile(store_factory):
    """One at a time is meant for the whole store."""
    one, other = store_factory(), store_factory()
    begin_run(one, "run-1")
    begin_run(other, "run-2")
    accuse(one, 2)
    (held,) = grant(one).leases
    batch = grant(other, "run-2")
    assert (batch.leases, batch.suspects_wait) == ((), True)
    one.settle([hand_back(held)])
    assert [lease.suspect for lease in grant(other, "run-2").leases] == [True]
    assert grant(one).leases == ()


def test_who_is_too_young_gets_none(store):
    """Asked for without suspects, they wait, and that is told."""
    (job_id,) = accuse(store)
    batch = grant(store, suspects=False)
    assert (batch.leases, batch.suspects_wait) == ((), True)
    assert [one.id for one in grant(store).leases] == [job_id]


@pytest.mark.parametrize("what", [{"pool": "cpu"}, {"kind": "shop.thumbnail"}])
def test_what_is_paused_or_unknown_or_not_due_waits_unseen(store, what, clock):
    """Suspects are jobs like others."""
    accuse(store)
    store.pause(**what)
    batch = grant(store)
    assert (batch.leases, batch.suspects_wait) == ((), False)
    store.resume(**what)
    assert store.lease("run-1", {"cpu": 5}, {"cpu": ["other"]}).leases == ()
    assert store.lease("run-1", {"io": 5}, KINDS).leases == ()
    assert len(grant(store).leases) == 1


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.CANCELED])
def test_a_suspect_that_is_not_runnable_is_not_granted(store, clock, state):
    """Neither before its time, nor after its end."""
    (first,) = accuse(store)
    held = grant(store).leases[0]
    if state is JobState.PENDING:
        store.settle([ended(held, retry_in_s=5.0)])
    else:
        store.settle([hand_back(held)])
        store.cancel([first])
    assert store.get(first).state is state
    batch = grant(store)
    assert (batch.leases, batch.suspects_wait) == ((), False)
    clock.advance(5)
    due = [first] if state is JobState.PENDING else []
    assert [one.id for one in grant(store).leases] == due


def test_a_runnable_suspect_is_granted_before_one_that_is_not(store, clock):
    """Whatever the other one's priority: it is not its turn."""
    (later,) = accuse(store, priority=9)
    held = grant(store).leases[0]
    store.settle([_replace(ended(held, retry_in_s=60.0), suspect=True)])
    (ended_one,) = accuse(store, priority=8)
    store.cancel([ended_one])
    (now,) = accuse(store)
    assert {one.id for one in store.suspects()} == {later, now}
    assert [one.id for one in grant(store).leases] == [now]


def test_a_lone_suspects_lease_says_so(store):
    """Also when it is all that its run holds."""
    (job_id,) = accuse(store)
    grant(store)
    assert [(one.id, one.suspect) for one in store.leases_of("run-1")] == [
        (job_id, True)
    ]


def test_pauses_of_others_hold_no_suspect(store):
    """A kind may be called as a pool is, and the other way about."""
    (job_id,) = accuse(store)
    store.pause(kind="cpu")
    store.pause(kind="shop.fetch")
    store.pause(pool="io")
    store.pause(pool="shop.thumbnail")
    assert grant(store, suspects=False).suspects_wait
    assert [one.id for one in grant(store).leases] == [job_id]


def test_a_suspect_needs_one_slot_in_its_own_pool(store):
    """It is granted where one is wanted, and where none is it waits."""
    (job_id,) = accuse(store)
    assert store.lease("run-1", {"cpu": 0, "io": 1}, KINDS).leases == ()
    assert store.lease("run-1", {"io": 1}, KINDS).leases == ()
    granted = store.lease("run-1", {"cpu": 1}, KINDS).leases
    assert [one.id for one in granted] == [job_id]


def test_those_that_died_alone_come_last(store):
    """Innocents shall not wait for the next deaths of a killer."""
    killer, innocent = accuse(store, 2)
    held = grant(store).leases[0]
    assert held.id == killer
    store.settle([_replace(ended(held, Outcome.LOST), suspect=True)])
    assert store.get(killer).recoveries == store.get(innocent).recoveries + 1
    assert grant(store).leases[0].id == innocent


def test_leases_of_a_run_say_who_is_on_probation(store):
    """Until it is cleared, under its token only."""
    (job_id,) = accuse(store)
    store.enqueue([new_job()])
    held = grant(store).leases[0]
    found = {one.id: one.suspect for one in store.leases_of("run-1")}
    assert (found[job_id], list(found.values()).count(True)) == (True, 1)
    store.clear([(job_id, held.token + 7)])
    assert [one.id for one in store.suspects()] == [job_id]
    store.clear([(job_id, held.token)])
    assert store.suspects() == []
    assert not any(one.suspect for one in store.leases_of("run-1"))
    store.settle([ended(held, Outcome.INTERRUPTED)])
    assert [one.suspect for one in grant(store).leases] == [False]


def test_a_suspect_that_is_handed_back_stays_one(store):
    """Nothing was shown by it; a stale word changes nothing either."""
    (job_id,) = accuse(store)
    held = grant(store).leases[0]
    store.settle([hand_back(held)])
    store.settle([_replace(succeeded(held), suspect=False)])
    assert [one.id for one in store.suspects()] == [job_id]
    assert grant(store).leases[0].suspect


def test_suspects_are_listed_while_they_are_unfinished(store, clock):
    """With where they stand; one that was canceled is forgotten by a prune."""
    one, other = accuse(store, 2)
    held = grant(store).leases[0]
    rows = {row.id: row for row in store.suspects()}
    assert (rows[one].state, rows[other].state) == (
        JobState.LEASED,
        JobState.RUNNABLE,
    )
    assert (rows[one].kind, rows[one].pool) == ("shop.thumbnail", "cpu")
    assert rows[one].since_ms == clock.utc_ms()
    assert store.cancel([other]) == 1
    assert [row.id for row in store.suspects()] == [one]
    store.prune(Retention())
    store.revive([other], [JobState.CANCELED])
    assert [row.id for row in store.suspects()] == [one]
    store.settle([_replace(succeeded(held), suspect=False)])
    assert store.suspects() == []


def test_waiting_suspects_are_nobodys_due_work(store):
    """A pool with a range does not grow for what runs one at a time."""
    accuse(store, 3)
    assert grant(store, suspects=False).suspects_wait
    store.enqueue([new_job()])
    assert store.due({"cpu": KINDS["cpu"]}, 10) == {"cpu": 1}


def test_a_rollback_takes_suspicion_back(store):
    """All of a settlement, or nothing."""
    store.enqueue([new_job()])
    (held,) = lease(store)

    def fail():
        with store.transaction():
            store.settle([_replace(ended(held, Outcome.LOST), suspect=True)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.suspects() == []
    assert grant(store).leases == ()


# -- deaths ----------------------------------------------------------------------------


def test_deaths_are_counted_by_what_they_took_along(store, clock):
    """Of others, within ten minutes before; looked at twice it is one death."""
    for number in range(2, 6):
        begin_run(store, f"run-{number}")
    assert store.note_death("run-1", 3) == Deaths(leaving=False, with_jobs=0, idle=0)
    assert store.note_death("run-1", 0) == Deaths(leaving=False, with_jobs=0, idle=0)
    assert store.note_death("run-2", 1) == Deaths(leaving=False, with_jobs=1, idle=0)
    assert store.note_death("run-3", 0) == Deaths(leaving=False, with_jobs=2, idle=0)
    assert store.note_death("run-4", 0) == Deaths(leaving=False, with_jobs=2, idle=1)
    clock.advance(DEATHS_WITHIN_S + 1)
    assert store.note_death("run-5", 1) == Deaths(leaving=False, with_jobs=0, idle=0)


def test_the_end_of_a_host_is_one_death(store):
    """All supervisors of one boot died at once: none of them another death to each."""
    for number in (2, 3):
        begin_run(store, f"run-{number}")
    begin_run(store, "run-4", boot_id="later")
    none = Deaths(leaving=False, with_jobs=0, idle=0)
    assert store.note_death("run-1", 0, with_host=True) == none
    assert store.note_death("run-2", 3, with_host=True) == none
    assert store.note_death("run-3", 3, with_host=True) == none
    assert store.note_death("run-4", 1, with_host=True) == Deaths(
        leaving=False, with_jobs=2, idle=1
    )


def test_a_death_that_was_wanted_is_none(store):
    """It is told as such, and counts for nobody else."""
    begin_run(store, "run-2")
    store.note_leaving("run-1")
    store.note_leaving("run-1")
    store.note_leaving("unknown")
    assert store.note_death("run-1", 2).leaving
    assert store.note_death("run-2", 2) == Deaths(leaving=False, with_jobs=0, idle=0)


def test_a_run_that_has_ended_is_not_leaving_any_more(store):
    """What it says afterwards is nobody's."""
    store.end_run("run-1")
    store.note_leaving("run-1")
    assert not store.note_death("run-1", 0).leaving


# -- breakers --------------------------------------------------------------------------


def saved(kind="shop.thumbnail", **facts):
    given = {"state": BreakerState.OPEN, "crashes": 20, "last_job": 7, "wait_s": 60.0}
    return Saved(kind=kind, **{**given, **facts})


def test_breakers_are_kept_and_forgotten(store, clock):
    """Their waits go on by the store's clock; without crashes they are gone."""
    store.save_breakers([saved(), saved("a", state=BreakerState.CLOSED, crashes=1)])
    clock.advance(20)
    found = store.breakers()
    assert found == [
        saved("a", state=BreakerState.CLOSED, crashes=1, wait_s=40.0),
        saved(wait_s=40.0),
    ]
    clock.advance(1000)
    assert store.breakers()[1].wait_s == 0
    store.save_breakers([saved(crashes=21, wait_s=1.0), saved("a", crashes=0)])
    assert store.breakers() == [saved(crashes=21, wait_s=1.0)]
    store.save_breakers([saved("never", crashes=0)])
    assert len(store.breakers()) == 1
