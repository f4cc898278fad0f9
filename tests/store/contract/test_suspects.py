"""Suspects and deaths of supervisors, in every store."""

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import hand_back
from jobpool.core.rules.suspects import (
    PROBATION_MAX_S,
    PROBATION_S,
)
from jobpool.store.records.jobs import LeaseBatch
from support.store.storing import (
    KINDS,
    begin_run,
    ended,
    lease,
    new_job,
    started,
    succeeded,
)

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


def test_one_suspect_at_a_time_is_granted_before_any_others(store):
    """With those that fit beside it; the second suspect when the first is back."""
    second, first = accuse(store, 2)
    plain = [one.id for one in store.enqueue([new_job(priority=9)] * 3)]
    batch = grant(store, cpu=2)
    assert [(one.id, one.suspect) for one in batch.leases] == [
        (plain[0], False),
        (first, True),
    ]
    assert batch.suspects_wait
    assert [one.id for one in grant(store).leases] == plain[1:]
    assert grant(store).suspects_wait
    store.settle([_replace(succeeded(batch.leases[-1]), suspect=False)])
    again = grant(store)
    assert [(one.id, one.suspect) for one in again.leases] == [(second, True)]
    assert not again.suspects_wait


def test_no_other_supervisor_gets_a_suspect_meanwhile(store_factory):
    """One suspect at a time is allowed in the whole store."""
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


def test_a_supervisor_that_just_started_gets_no_suspect(store):
    """Nor anything else, so that it is empty when it may take one."""
    (job_id,) = accuse(store)
    (plain,) = store.enqueue([new_job()])
    batch = grant(store, suspects=False)
    assert (batch.leases, batch.suspects_wait) == ((), True)
    assert [one.id for one in grant(store).leases] == [plain.id, job_id]


@pytest.mark.parametrize("what", [{"pool": "cpu"}, {"kind": "shop.thumbnail"}])
def test_suspects_that_are_paused_unknown_or_not_due_wait(store, what, clock):
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
    """Whatever the other one's priority."""
    (later,) = accuse(store, priority=9)
    held = grant(store).leases[0]
    store.settle([_replace(ended(held, retry_in_s=60.0), suspect=True)])
    (ended_one,) = accuse(store, priority=8)
    store.cancel([ended_one])
    (now,) = accuse(store)
    assert {one.id for one in store.suspects()} == {later, now}
    assert [one.id for one in grant(store).leases] == [now]


def test_the_lease_of_a_suspect_granted_alone_says_so(store):
    """Also when it is the only lease of its run."""
    (job_id,) = accuse(store)
    grant(store)
    assert [(one.id, one.suspect) for one in store.leases_of("run-1")] == [
        (job_id, True)
    ]


def test_a_pause_of_the_same_name_in_the_other_table_holds_no_suspect(store):
    """A kind may have a pool's name, and a pool a kind's."""
    (job_id,) = accuse(store)
    store.pause(kind="cpu")
    store.pause(kind="shop.fetch")
    store.pause(pool="io")
    store.pause(pool="shop.thumbnail")
    assert grant(store, suspects=False).suspects_wait
    assert [one.id for one in grant(store).leases] == [job_id]


def test_a_suspect_needs_one_slot_in_its_own_pool(store):
    """It is granted if its pool requests a job, and waits otherwise."""
    (job_id,) = accuse(store)
    assert store.lease("run-1", {"cpu": 0, "io": 1}, KINDS).leases == ()
    assert store.lease("run-1", {"io": 1}, KINDS).leases == ()
    granted = store.lease("run-1", {"cpu": 1}, KINDS).leases
    assert [one.id for one in granted] == [job_id]


def test_the_suspect_that_began_last_before_it_was_lost_comes_first(store):
    """A killer that began beside others has none beside it the next time."""
    ids = accuse(store, 3)
    held = grant(store).leases[0]
    assert held.id == ids[2]
    store.clear([(held.id, held.token)])
    accused = grant(store).leases[0]
    assert accused.id == ids[1]
    store.settle(
        [_replace(ended(one, Outcome.LOST), suspect=True) for one in (accused, held)]
    )
    order = []
    while batch := grant(store).leases:
        order.append(batch[0].id)
        store.settle([_replace(succeeded(batch[0]), suspect=False)])
    assert order == [ids[1], ids[2], ids[0]]


def test_a_suspect_granted_with_others_is_the_last_of_them(store):
    """It begins when they have run for a while: it is its turn again after a loss."""
    (first,) = accuse(store)
    others = [one.id for one in store.enqueue([new_job(priority=9)] * 2)]
    leases = grant(store).leases
    assert {one.id for one in leases} == {first, *others}
    assert max(leases, key=lambda one: one.token).id == first
    store.settle([_replace(ended(one, Outcome.LOST), suspect=True) for one in leases])
    assert [one.id for one in grant(store, cpu=1).leases] == [first]


def test_a_run_without_leases_gets_a_suspect_alone(store):
    """Others come with the next request."""
    (job_id,) = accuse(store)
    plain = [
        one.id
        for one in store.enqueue([new_job(), new_job(kind="shop.fetch", pool="io")])
    ]
    assert [one.id for one in grant(store, alone=True).leases] == [job_id]
    assert sorted(one.id for one in grant(store, alone=True).leases) == plain


def test_nothing_is_granted_beside_a_suspect_on_probation_of_the_same_host(
    store_factory, clock
):
    """Until it is cleared, ends, or has had the longest probation.

    Other hosts go on.
    """
    one, other, far = store_factory(), store_factory(), store_factory()
    begin_run(one, "run-1")
    begin_run(other, "run-2")
    begin_run(far, "run-3", boot_id="elsewhere")
    accuse(one)
    one.enqueue([new_job()] * 4)
    held = grant(one, alone=True).leases[0]
    assert len(grant(far, "run-3", cpu=1).leases) == 1
    assert grant(other, "run-2", cpu=1) == _replace(
        LeaseBatch(), suspects_wait=True, next_due_in_s=None
    )
    clock.advance(1)
    one.begin_attempts([started(held, "cpu/0")])
    clock.advance(PROBATION_MAX_S / 2)
    for store, run_id in ((one, "run-1"), (other, "run-2")):
        store.renew(run_id, 60.0, anew=True)
    assert grant(other, "run-2", cpu=1).leases == ()
    assert len(grant(one, "run-1", cpu=1).leases) == 1
    clock.advance(PROBATION_MAX_S / 2)
    other.renew("run-2", 60.0, anew=True)
    assert len(grant(other, "run-2", cpu=1).leases) == 1
    one.clear([(held.id, held.token)])
    assert len(grant(other, "run-2", cpu=1).leases) == 1


def test_a_suspect_that_does_not_begin_delays_no_other(store_factory, clock):
    """It may wait hours for memory; its own supervisor handles that."""
    one, other = store_factory(), store_factory()
    begin_run(one, "run-1")
    begin_run(other, "run-2")
    accuse(one)
    one.enqueue([new_job()])
    assert len(grant(one, alone=True).leases) == 1
    assert grant(other, "run-2").leases == ()
    clock.advance(PROBATION_S)
    assert len(grant(other, "run-2").leases) == 1


def test_leases_of_a_run_say_which_jobs_are_on_probation(store):
    """Until each is cleared, under its token only."""
    (job_id,) = accuse(store)
    store.enqueue([new_job()])
    held = grant(store).leases[-1]
    found = {one.id: one.suspect for one in store.leases_of("run-1")}
    assert (found[job_id], list(found.values()).count(True)) == (True, 1)
    store.clear([(job_id, held.token + 7)])
    assert [one.id for one in store.suspects()] == [job_id]
    store.clear([(job_id, held.token)])
    assert store.suspects() == []
    assert not any(one.suspect for one in store.leases_of("run-1"))
    store.settle([ended(held, Outcome.INTERRUPTED)])
    assert [one.suspect for one in grant(store).leases] == [False]


def test_a_suspect_that_is_handed_back_stays_a_suspect(store):
    """It has proved nothing; a stale report changes nothing either."""
    (job_id,) = accuse(store)
    held = grant(store).leases[0]
    store.settle([hand_back(held)])
    store.settle([_replace(succeeded(held), suspect=False)])
    assert [one.id for one in store.suspects()] == [job_id]
    assert grant(store).leases[0].suspect


def test_suspects_are_listed_while_they_are_unfinished(store, clock):
    """With their states; a canceled one is forgotten by a prune."""
    other, one = accuse(store, 2)
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


def test_waiting_suspects_are_not_counted_as_due(store):
    """A pool with a range does not grow for jobs that run one at a time."""
    accuse(store, 3)
    assert grant(store, suspects=False).suspects_wait
    store.enqueue([new_job()])
    assert store.due({"cpu": KINDS["cpu"]}, 10) == {"cpu": 1}


def test_a_rollback_undoes_suspicion(store):
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
