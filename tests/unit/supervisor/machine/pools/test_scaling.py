"""A new child waits briefly for a death that is about to happen."""

import signal

from jobpool.core.rules.limits import PoolLimits
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine.pools.scaling import GIVE_WAY_S, GIVE_WAY_S_MAX
from support.machine.world import MIB, World, pool

LIMIT_S = 2.0
APART_S = 0.8 * GIVE_WAY_S


def two_that_hang(apart_s=0.0):
    """Two attempts that reach their limits, one shortly after the other."""
    world = World(pool(limits=PoolLimits(timeout_s=LIMIT_S, memory_bytes=512 * MIB)))
    world.up().job()
    world.notify()
    world.wait(apart_s)
    world.job()
    world.notify()
    world.took(cmd.Fork)
    world.wait(LIMIT_S - apart_s)
    return world


def forks(world):
    return [command.slot for command in world.took(cmd.Fork)]


def test_children_killed_together_are_reaped_before_new_ones_are_forked():
    """While a child is being forked, the second one's tree cannot be proved gone."""
    world = two_that_hang()
    assert [kill.slot for kill in world.took(cmd.Kill)] == [0, 1]
    world.died(0, signal=signal.SIGKILL)
    assert forks(world) == []
    world.died(1, signal=signal.SIGKILL)
    assert forks(world) == [0, 1]


def test_a_child_that_does_not_die_delays_others_only_briefly():
    """The kernel may keep it forever (disk sleep)."""
    world = two_that_hang()
    world.died(0, signal=signal.SIGKILL)
    world.wait(GIVE_WAY_S)
    assert forks(world) == []
    world.wait(GIVE_WAY_S_MAX)
    assert forks(world) == [0]


def test_a_fork_waits_for_a_limit_that_is_near():
    """Also if the attempt ends in time after all: the new child is made then."""
    world = two_that_hang(APART_S)
    assert [kill.slot for kill in world.took(cmd.Kill)] == [0]
    world.died(0, signal=signal.SIGKILL)
    assert forks(world) == []
    world.done(1)
    world.wait(GIVE_WAY_S)
    assert forks(world) == [0]


def test_a_fork_does_not_wait_for_a_limit_that_is_far():
    """A child that crashes beside one that runs well is replaced at once."""
    world = two_that_hang(0.5)
    world.died(0, signal=signal.SIGKILL)
    assert forks(world) == [0]


def test_many_deaths_in_a_row_do_not_delay_forks_forever():
    """One pool's kills do not keep the others without children."""
    world = World(
        pool(size=12, limits=PoolLimits(timeout_s=LIMIT_S, memory_bytes=512 * MIB))
    )
    world.up()
    for _ in range(12):
        world.job()
        world.notify()
        world.wait(APART_S)
    world.took(cmd.Fork)
    world.wait(LIMIT_S - 12 * APART_S)
    world.died(0, signal=signal.SIGKILL)
    assert forks(world) == []
    world.wait(GIVE_WAY_S_MAX + GIVE_WAY_S)
    assert forks(world) == [0]
