"""Quotas that each supervisor counts alone: the cap is kept, and nothing is leaked."""

import pytest

from jobpool.core.rules.quotas.definition import Need, Quota
from jobpool.supervisor.machine import commands as cmd
from support.machine.world import World, pool

DISK = Quota(name="disk", concurrency=2, host_only=True)


@pytest.fixture
def world():
    """Four slots, and room for two jobs."""
    world = World(pool("cpu", 4), quotas=(DISK,), needs=(Need("disk"),)).up()
    world.takes_back = True
    return world


def running(world):
    """Return the ids of what runs."""
    return [slot.queue[0].lease.id for slot in world.machine.slots if slot.queue]


def test_no_more_run_than_the_cap_and_the_others_go_back(world):
    """Nothing is charged, and their kind is not leased meanwhile."""
    jobs = [world.job() for _ in range(4)]
    world.notify()
    assert running(world) == [jobs[0].id, jobs[1].id]
    assert {one.outcome for one in world.settled} == {None}
    assert all(one.unbegun for one in world.settled)
    world.took(cmd.Lease)
    world.wait(3.0)
    asked = world.took(cmd.Lease)
    assert asked
    assert all("cpu.work" in one.held for one in asked)


@pytest.mark.parametrize("ends", ["succeeds", "crashes"])
def test_the_end_of_one_lets_the_next_begin_at_once(world, ends):
    """However it ends; no poll is awaited."""
    jobs = [world.job() for _ in range(3)]
    world.notify()
    world.settled.clear()
    slot = next(
        s.number for s in world.machine.slots if s.queue[0].lease.id == jobs[0].id
    )
    if ends == "succeeds":
        world.done(slot)
    else:
        world.died(slot, signal=11)
    assert set(running(world)) == {jobs[1].id, jobs[2].id}
    assert not world.machine._places.has_room("disk", 1)


def test_a_job_that_goes_back_holds_nothing(world):
    """A drain hands back what has not begun."""
    world.hold_grants = True
    world.job()
    world.notify()
    pool_ = world.machine.pools["cpu"]
    pool_.size = 0  # no slot may take it
    world.answer_grant()
    assert len(pool_.backlog) == 1
    assert bool(world.machine._places)
    world.wait(2.0)
    assert not pool_.backlog
    assert not world.machine._places


def test_a_cost_counts_for_so_many():
    """All of it is free, or the job waits."""
    world = World(pool("cpu", 4), quotas=(DISK,), needs=(Need("disk", 2),)).up()
    world.takes_back = True
    jobs = [world.job() for _ in range(2)]
    world.notify()
    assert running(world) == [jobs[0].id]


def test_none_is_sent_ahead_with_what_it_does_not_use_yet():
    """Even of a kind whose jobs are fast."""
    world = World(pool("cpu", 1), quotas=(DISK,), needs=(Need("disk"),)).up()
    world.takes_back = True
    world.fast()
    for _ in range(2):
        world.job()
    world.notify()
    assert [len(slot.queue) for slot in world.machine.slots] == [1]


def test_kinds_without_such_quotas_need_not_be_asked():
    """Their fast path stays what it is."""
    world = World().up()
    gate = world.machine._dispatcher._gates[1]
    assert gate.is_open
    assert not gate.needs_ends
