"""How a pool gets many children, and what it does when they cannot be made."""

from __future__ import annotations

from jobpool.core.events.supervisor import Alarm
from jobpool.sandbox.protocol.messages import Ready
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.starting import FORK_LATE_S
from jobpool.supervisor.machine.pools.scaling import FORKS_MAX
from support.machine.world import MIB, World, pool

SLOTS = 64


def slow_zygote() -> World:
    """Return a world in which tests say when a child has been made."""
    world = World(pool("cpu", SLOTS))
    world.deaf_forks = True
    return world.up()


def asked(world: World) -> list[int]:
    """Return the slots that a child was asked for."""
    return [command.slot for command in world.took(cmd.Fork)]


def test_children_are_asked_for_some_at_a_time() -> None:
    """As one is made, another is asked for, whether or not it is ready."""
    world = slow_zygote()
    assert asked(world) == list(range(FORKS_MAX))
    for slot in range(SLOTS):
        world.step(inp.ChildForked(slot))
        assert asked(world) == [slot + FORKS_MAX][: slot + FORKS_MAX < SLOTS]
    for slot in range(SLOTS):
        world.step(inp.FramesArrived(slot, [Ready(20 * MIB)]))
    assert asked(world) == []
    assert world.machine.pools["cpu"].children == SLOTS


def test_a_zygote_that_makes_many_children_slowly_is_not_given_up() -> None:
    """Each has its time from when it is asked for, not from when all were wanted."""
    world = slow_zygote()
    each_s = 0.9 * FORK_LATE_S / FORKS_MAX
    for slot in range(SLOTS):
        world.wait(each_s)
        world.step(inp.ChildForked(slot))
    assert SLOTS * each_s > FORK_LATE_S
    assert world.took(cmd.KillZygote) == []


def test_one_lost_zygote_is_one_failure_however_many_children_it_was_to_make() -> None:
    """The pool tries again soon, and not after a pause for each of them."""
    world = slow_zygote()
    asked(world)
    for slot in range(FORKS_MAX):
        world.step(inp.ForkRefused(slot, "its zygote is gone"))
    alarms = [one.text for one in world.said if isinstance(one, Alarm)]
    assert len(alarms) == FORKS_MAX
    assert all("trying again in 100ms" in text for text in alarms)
    world.wait(0.1)
    assert asked(world) == list(range(FORKS_MAX))
    world.step(inp.ForkRefused(0, "its zygote is gone"))
    world.wait(0.19)
    assert asked(world) == []
    world.wait(0.02)
    assert asked(world) == [0]
