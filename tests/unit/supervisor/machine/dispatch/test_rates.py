"""What a rate counts as begun by a moment never begins after it."""

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.quotas.gcra import SLOW_MAX_S
from jobpool.sandbox.protocol.messages import Ready
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state.durations import BRISK_S
from support.machine.world import MIB, World, pool


def running(world):
    """Return the ids of what runs."""
    return [slot.queue[0].lease.id for slot in world.machine.slots if slot.queue]


def test_a_job_that_begins_in_time_begins():
    """A slot is free for it."""
    world = World(pool("cpu", 1)).up()
    job = world.job(begin_within_s=0.1, laned=True)
    world.notify()
    assert running(world) == [job.id]


@pytest.mark.parametrize("sleeps", [False, True])
def test_a_grant_that_came_too_late_goes_back_unbegun(sleeps):
    """It counts from before the request, and while the host sleeps."""
    world = World(pool("cpu", 1)).up()
    world.hold_grants = True
    job = world.job(begin_within_s=0.1, laned=True)
    world.notify()
    if sleeps:
        world.slept_s += 0.1
    else:
        world.now_s += 0.1
    world.answer_grant()
    assert running(world) == []
    (settled,) = world.settled
    assert (settled.id, settled.state) == (job.id, JobState.RUNNABLE)
    assert settled.unbegun
    assert settled.outcome is None


def test_where_answers_come_too_late_more_time_is_asked_for():
    """Else no job of a rate ever began there; less, once they come soon again."""
    world = World(pool("cpu", 8)).up()
    world.hold_grants = True

    def asks_next(after_s):
        """Answer, and return how slow the next answer is said to be."""
        world.now_s += after_s
        world.took(cmd.Lease)
        world.answer_grant()
        world.job(begin_within_s=0.02, laned=True)
        world.notify()
        (asked,) = world.took(cmd.Lease)
        return asked.slow_s

    world.job(begin_within_s=0.02, laned=True)
    world.notify()
    assert asks_next(after_s=0.001) == 0.0
    assert asks_next(after_s=0.06) == pytest.approx(0.12)
    assert asks_next(after_s=1.0) == pytest.approx(0.12)  # it has brought nothing
    assert asks_next(after_s=9.0) == SLOW_MAX_S
    assert asks_next(after_s=1.0) == SLOW_MAX_S
    assert asks_next(after_s=0.001) == SLOW_MAX_S / 2


def test_a_job_without_a_slot_goes_back_when_its_time_is_over():
    """Not only once it has waited as long as any may; the others wait on."""
    world = World(pool("cpu", 1)).up()
    world.hold_grants = True
    others = [world.job() for _ in range(2)]
    timed = world.job(begin_within_s=BRISK_S / 2, laned=True)
    asked = world.machine.pools["cpu"]
    asked.capacity = lambda _now_s: 3
    world.notify()
    del asked.capacity
    world.answer_grant()
    assert running(world) == [others[0].id]
    world.wait(BRISK_S / 4)
    assert world.settled == []
    world.wait(BRISK_S / 4)
    assert [one.id for one in world.settled] == [timed.id]
    assert [job.lease.id for job in asked.backlog] == [others[1].id]


def test_what_a_child_never_began_is_still_bound_to_its_moment():
    """It goes back from a dead child, and may not begin in the next one."""
    world = World(pool("cpu", 1)).up()
    job = world.job(begin_within_s=0.2, laned=True)
    world.notify()
    (assigned,) = world.machine.slots[0].queue
    world.deaf_forks = True
    world.died(0, signal=9, never_begun=(assigned.seq,), marked=frozenset())
    assert len(world.machine.pools["cpu"].backlog) == 1
    world.wait(0.25)
    assert [(one.id, one.unbegun) for one in world.settled] == [(job.id, True)]


def test_none_is_sent_ahead_into_a_child():
    """The child would not know when its time is over."""
    world = World(pool("cpu", 1)).up().fast()
    world.job()
    for _ in range(3):
        world.job(begin_within_s=0.5, laned=True)
    world.notify()
    assert [len(slot.queue) for slot in world.machine.slots] == [1]


def test_the_store_is_told_for_how_many_no_slot_is_free():
    """A fast pool asks for more than it can begin at once."""
    world = World(pool("cpu", 2)).up()
    world.notify()
    assert [one.ahead for one in world.took(cmd.Lease)][-1] == {}
    world.fast()
    world.took(cmd.Lease)
    world.job()
    world.notify()
    asked = world.took(cmd.Lease)[0]
    assert asked.wanted["cpu"] - asked.ahead["cpu"] == 2


def test_the_end_of_a_job_with_permits_has_the_store_asked_at_once():
    """Others may have them; without, the polls that found nothing thin out."""
    for laned in (False, True):
        world = World(pool("cpu", 2)).up()
        world.job(laned=laned)
        world.notify()
        world.wait(10.0)
        world.took(cmd.Lease)
        world.machine.pools["cpu"].polling.next_s = world.now_s + 0.5
        world.done(0)
        assert bool(world.took(cmd.Lease)) == laned


def test_what_no_child_could_begin_in_time_is_not_leased_again_and_again():
    """Not before there is a child, or for a second."""
    world = World(pool("cpu", 1))
    world.deaf_forks = True
    world.up()
    world.takes_back = True
    job = world.job(begin_within_s=0.05, laned=True)
    world.notify()
    world.wait(0.9)
    assert [one.id for one in world.settled] == [job.id]
    world.wait(2.0)
    assert len(world.settled) <= 3
    (slot,) = world.machine.slots
    world.step(inp.ChildForked(slot.number))
    world.step(inp.FramesArrived(slot.number, [Ready(20 * MIB)]))
    assert running(world) == [job.id]


def test_a_slot_whose_child_starts_is_not_free_yet():
    """What is leased for it is leased ahead."""
    world = World(pool("cpu", 2))
    world.deaf_forks = True
    world.up()
    world.notify()
    assert world.took(cmd.Lease)[-1].ahead == {"cpu": 2}
