"""A job that is replaced: what passes on, what stays, and what is refused."""

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import FINISHED, UNFINISHED, JobState
from jobpool.core.rules.admission import Admission
from jobpool.core.rules.policy import Policy
from jobpool.errors import QueueFull, UsageError
from jobpool.store.records.operating import Filter, Replay
from support.store.storing import ended, lease_one, make_waiting, new_job, succeeded

FIXED = b'{"path":"cat.jpg"}'
ONCE = Policy(max_attempts=1)


def dead(store, **options):
    """A job whose only attempt has failed."""
    (stored,) = store.enqueue([new_job(**options)])
    granted = lease_one(store)
    assert granted.id == stored.id
    store.settle([ended(granted, policy=ONCE)])
    assert store.get(stored.id).state is JobState.DEAD
    return stored.id


def replayed(store, job_id, **changes):
    """Replace a job by one with its options."""
    job = store.get(job_id)
    options = {
        name: getattr(job, name)
        for name in ("kind", "pool", "priority", "key", "unique", "tenant")
    }
    new = new_job(**{**options, "payload": FIXED, **changes})
    return store.replay([Replay(job_id=job_id, new=new)])[0]


def test_the_old_job_stays_as_it_is_but_for_its_key_and_the_link(store):
    """With its arguments and its history; both name each other."""
    old_id = dead(store, key="order-7", tenant="acme", priority=5)
    before, tried = store.get(old_id), store.attempts(old_id)
    new_id = replayed(store, old_id)
    old, new = store.get(old_id), store.get(new_id)
    assert old == msgspec.structs.replace(before, key=None, replaced_by=new_id)
    assert (store.payload(old_id), store.attempts(old_id)) == (b"{}", tried)
    assert (new.replays, new.replaced_by, new.key) == (old_id, None, "order-7")
    assert (new.state, new.attempt, new.priority) == (JobState.RUNNABLE, 0, 5)
    assert store.payload(new_id) == FIXED
    assert [one.replaced_by for one in store.find(Filter())] == [None, new_id]
    granted = lease_one(store)
    assert (granted.id, granted.key, granted.tenant) == (new_id, "order-7", "acme")


def test_the_key_is_held_throughout_and_once(store):
    """A producer who sends the new arguments again gets the new job."""
    old_id = dead(store, key="order-7")
    new_id = replayed(store, old_id)
    again = store.enqueue([new_job(key="order-7", payload=FIXED)])
    assert [(one.id, one.created) for one in again] == [(new_id, False)]
    assert [one.id for one in store.find(Filter(key="order-7"))] == [new_id]


def test_a_job_is_replaced_once(store):
    """Twice in one call as well; the one that replaced it can be, in its turn."""
    old_id = dead(store)
    new = new_job()
    first, second = store.replay([Replay(job_id=old_id, new=new)] * 2)
    assert second is None
    assert replayed(store, old_id) is None
    store.settle([ended(lease_one(store), policy=ONCE)])
    third = replayed(store, first)
    assert store.get(first).replays == old_id
    assert store.get(first).replaced_by == third
    assert store.count(Filter()) == 3


def test_only_what_has_ended_is_replaced(store):
    """Each state; nothing is stored for one that has not, nor for no job at all."""
    for state in JobState:
        job_id = one_in(store, state)
        assert store.get(job_id).state is state
        before = store.count(Filter())
        is_replaced = replayed(store, job_id) is not None
        assert is_replaced == (state in FINISHED)
        assert store.count(Filter()) == before + is_replaced
        store.cancel([job.id for job in store.find(Filter(states=UNFINISHED))])
    assert store.replay([Replay(job_id=99, new=new_job())]) == [None]


def one_in(store, state):
    """A job in a state."""
    delay_ms = 60_000 if state is JobState.PENDING else 0
    (stored,) = store.enqueue([new_job(delay_ms=delay_ms)])
    match state:
        case JobState.WAITING:
            make_waiting(store, stored.id)
        case JobState.CANCELED:
            store.cancel([stored.id])
        case JobState.LEASED:
            lease_one(store)
        case JobState.SUCCEEDED:
            store.settle([succeeded(lease_one(store))])
        case JobState.DEAD | JobState.QUARANTINED:
            end = ended(lease_one(store), policy=ONCE)
            store.settle([msgspec.structs.replace(end, state=state)])
    return stored.id


def test_a_job_that_was_replaced_does_not_run_again(store):
    """Its arguments were wrong: a retry of all that is dead leaves it alone."""
    old_id = dead(store)
    replayed(store, old_id)
    other = lease_one(store)
    store.settle([ended(other, policy=ONCE)])
    assert store.revive([old_id], [JobState.DEAD]) == 0
    assert store.revive([old_id, other.id], [JobState.DEAD]) == 1
    assert store.get(old_id).state is JobState.DEAD


def test_what_another_job_holds_is_not_taken(store):
    """A unique text, or the key in another kind: nothing is changed for that one."""
    old_id = dead(store, unique="nightly", key="order-7")
    (other,) = store.enqueue([new_job(unique="nightly")])
    before = store.get(old_id)
    assert replayed(store, old_id) is None
    assert store.get(old_id) == before
    store.cancel([other.id])
    store.enqueue([new_job(kind="shop.resize", key="order-7")])
    assert replayed(store, old_id, kind="shop.resize") is None
    assert store.get(old_id) == before
    assert replayed(store, old_id) is not None


def test_of_two_that_want_the_same_the_first_gets_it(store):
    """Within one call; the second one is left as it was, with its key."""
    first = dead(store, key="order-7", unique="a")
    second = dead(store, kind="shop.resize", key="order-7")
    third = dead(store, unique="a")
    wanted = [
        Replay(job_id=first, new=new_job(key="order-7", unique="a")),
        Replay(job_id=second, new=new_job(key="order-7")),
        Replay(job_id=third, new=new_job(unique="a")),
    ]
    made, *others = store.replay(wanted)
    assert others == [None, None]
    assert store.get(made).key == "order-7"
    assert store.get(second).key == "order-7"
    assert store.get(third).replaced_by is None


def test_an_erased_job_is_not_replaced(store):
    """What is known of it elsewhere does not come back."""
    old_id = dead(store)
    store.erase([old_id])
    assert store.replay([Replay(job_id=old_id, new=new_job(payload=FIXED))]) == [None]


def test_a_full_queue_does_not_refuse_a_replay(store_factory, store):
    """As it refuses no retry: the job had been accepted once."""
    old_id = dead(store)
    full = store_factory(admission=Admission(depth_max=1))
    full.enqueue([new_job()])
    with pytest.raises(QueueFull):
        full.enqueue([new_job()] * 2)
    assert replayed(full, old_id) is not None


def test_one_bad_job_replaces_none(store):
    """The call is one transaction."""
    first, second = dead(store, key="a"), dead(store)
    bad = [
        Replay(job_id=first, new=new_job(key="a")),
        Replay(job_id=second, new=new_job(pool="No such name")),
    ]
    with pytest.raises(UsageError, match="pool"):
        store.replay(bad)
    assert store.get(first).replaced_by is None
    assert store.get(first).key == "a"
    assert store.replay([]) == []


def test_the_link_to_a_pruned_job_is_its_id(store, clock):
    """Either may go first, and an id is given once."""
    old_id = dead(store, key="order-7")
    new_id = replayed(store, old_id)
    clock.advance(1)
    assert store.prune(Retention(dead_s=0.0)) == 1
    assert store.get(old_id) is None
    assert store.get(new_id).replays == old_id
    assert store.get(new_id).key == "order-7"
