"""One slot begins jobs in the order in which the store has them."""

from __future__ import annotations

from jobpool.sandbox.protocol.messages import Ready
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.dispatch.backlog import HOLD_S
from support.machine.world import MIB, World, pool


def without_child() -> World:
    """Return a world whose only child, of a fast pool, is not there yet."""
    world = World(pool("cpu", 1)).up().fast()
    world.takes_back = True
    world.job()
    world.notify()
    world.deaf_forks = True
    world.died(0, signal=9)
    world.sent.clear()
    return world


def begin_all(world: World) -> list[int]:
    """Let the child be ready and end everything; return the order of beginning."""
    world.deaf_forks = False
    world.step(inp.ChildForked(0))
    world.step(inp.FramesArrived(0, [Ready(20 * MIB)]))
    while world.machine.slots[0].queue:
        world.done(0)
    world.notify()
    while world.machine.slots[0].queue:
        world.done(0)
    return [frame.id for frame in world.sent[0]]


def test_no_later_job_begins_before_one_that_waited_for_too_long() -> None:
    """What no slot took in time goes back with all that was leased after it."""
    world = without_child()
    jobs = [world.job()]
    world.notify()
    world.wait(0.3 * HOLD_S)
    jobs += [world.job() for _ in range(3)]
    world.notify()
    assert len(world.machine.pools["cpu"].backlog) == 4
    world.wait(0.8 * HOLD_S)
    assert begin_all(world) == [job.id for job in jobs]


def test_no_job_goes_back_while_later_ones_are_on_their_way() -> None:
    """They would be there, and begin, before the store can grant it again."""
    world = without_child()
    jobs = [world.job()]
    world.notify()
    world.wait(0.3 * HOLD_S)
    world.hold_grants = True
    jobs += [world.job() for _ in range(3)]
    world.notify()
    world.wait(0.8 * HOLD_S)
    assert [one for one in world.settled if one.outcome is None] == []
    world.hold_grants = False
    world.answer_grant()
    assert begin_all(world) == [job.id for job in jobs]
