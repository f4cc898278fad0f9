"""Suspects that wait for memory: the others go on, and their own turn comes."""

from __future__ import annotations

from jobpool.core.rules.suspects import PROBATION_S
from jobpool.supervisor.machine import commands as cmd
from support.machine.world import MIB, World, pool


def world_of(budget_bytes: int) -> World:
    """Two pools and a budget; a supervisor that is old enough for suspects."""
    world = World(pool("cpu", 1), pool("io", 3)).up()
    world.machine._memory.budget_bytes = budget_bytes
    world.takes_back = True
    world.wait(PROBATION_S + 1)
    world.took(cmd.Lease)
    return world


def finish_quick(world: World, keep: set[int]) -> None:
    """End the running jobs, except a few."""
    for slot in world.machine.slots:
        if slot.queue and slot.queue[0].lease.id not in keep:
            world.done(slot.number)


def test_a_suspect_without_memory_does_not_hold_the_others() -> None:
    """A job of hours has the memory that it needs: other pools go on meanwhile."""
    world = world_of(1000 * MIB)
    hours = world.job("io", memory_bytes=500 * MIB).id
    world.notify()
    world.job("cpu", suspect=True, memory_bytes=900 * MIB)
    world.notify()
    quick = {world.job("io", memory_bytes=50 * MIB).id for _ in range(60)}
    world.notify()
    for _ in range(60):
        world.wait(1)
        finish_quick(world, {hours})
    ended = {s.id for s in world.settled if s.outcome is not None}
    assert quick <= ended
    assert ended == quick


def test_a_suspect_that_waited_for_memory_begins_alone() -> None:
    """Once there is room nothing else begins, and it waits until the rest is old."""
    world = world_of(1000 * MIB)
    large = world.job("io", memory_bytes=500 * MIB).id
    world.notify()
    accused = world.job("cpu", suspect=True, memory_bytes=600 * MIB).id
    world.notify()
    world.wait(5)
    small = world.job("io", memory_bytes=50 * MIB).id
    world.notify()
    running = {s.queue[0].lease.id for s in world.machine.slots if s.queue}
    assert running == {large, small}
    finish_quick(world, {small})
    later = world.job("io", memory_bytes=50 * MIB).id
    world.notify()
    world.wait(PROBATION_S - 1)
    running = {s.queue[0].lease.id for s in world.machine.slots if s.queue}
    assert running == {small}
    world.wait(2)
    running = {s.queue[0].lease.id for s in world.machine.slots if s.queue}
    assert running == {small, accused}
    world.wait(PROBATION_S)
    running = {s.queue[0].lease.id for s in world.machine.slots if s.queue}
    assert running == {small, accused, later}
