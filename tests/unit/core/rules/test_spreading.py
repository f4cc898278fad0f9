"""How jobs sent ahead are spread over the children."""

from __future__ import annotations

import pytest

from support.machine.world import World, pool


@pytest.mark.parametrize("jobs", [2, 3, 5, 8, 20, 64])
def test_jobs_are_spread_evenly_over_children(jobs: int) -> None:
    """Children with equally many get equally many, in the jobs' order."""
    world = World(pool("cpu", 2)).up().fast()
    first = world.job()
    world.notify()
    granted = [first, *(world.job() for _ in range(jobs))]
    world.notify()
    queues = [[job.lease.id for job in slot.queue] for slot in world.machine.slots]
    assert sorted(queues[0] + queues[1]) == [lease.id for lease in granted]
    assert all(queue == sorted(queue) for queue in queues)
    assert abs(len(queues[0]) - len(queues[1])) <= 1 + jobs // 8


def test_a_child_with_half_its_queue_left_is_sent_more() -> None:
    """So that a child never runs out of jobs and stands still."""
    world = World(pool("cpu", 1)).up().fast()
    for _ in range(120):
        world.job()
    world.notify()
    slot = world.machine.slots[0]
    full = len(slot.queue)
    assert world.machine.pools["cpu"].backlog
    while len(slot.queue) > full // 2 + 1:
        world.done(0)
    assert len(slot.queue) < full
    world.done(0)
    assert len(slot.queue) == full


def test_the_child_with_fewer_jobs_is_sent_more() -> None:
    """The child that is nearly done is served first, until both have as many."""
    world = World(pool("cpu", 2)).up().fast()
    for _ in range(40):
        world.job()
    world.notify()
    while len(world.machine.slots[0].queue) > 1:
        world.done(0)
    for _ in range(30):
        world.job()
    world.notify()
    lengths = [len(slot.queue) for slot in world.machine.slots]
    assert sum(lengths) > 30
    assert abs(lengths[0] - lengths[1]) <= 5
