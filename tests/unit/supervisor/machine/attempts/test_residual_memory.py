"""Memory left in a child by jobs, and jobs with smaller limits after them."""

from __future__ import annotations

import signal

from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.limits import Limits
from jobpool.sandbox.protocol.messages import Retire
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from support.machine.world import MIB, World, pool

SOFT = Limits(memory_soft=150 * MIB)
"""As declared by a handler, which thereby asks to be told."""


def left_behind(left_bytes: int, limits: Limits | None = None) -> World:
    """Return a world whose only child has run a job of 512 MiB and kept so much."""
    world = World(pool("cpu", 1), limits=limits).up()
    world.job()
    world.notify()
    base_bytes = world.machine.slots[0].base_rss_bytes
    world.done(0, rss_bytes=base_bytes + left_bytes)
    world.commands.clear()
    world.settled.clear()
    return world


def test_a_job_without_enough_room_in_a_child_gets_another_one() -> None:
    """It begins in a fresh one, and no job is charged."""
    world = left_behind(100 * MIB)
    job = world.job(memory_bytes=150 * MIB)
    world.notify()
    assert [(c.slot, c.frame) for c in world.took(cmd.Send)] == [(0, Retire())]
    assert len(world.took(cmd.Fork)) == 1
    (assigned,) = world.took(cmd.Assign)
    assert [frame.id for frame in assigned.frames] == [job.id]
    assert world.settled == []


def test_children_without_room_are_replaced_one_at_a_time() -> None:
    """All others stay for jobs that fit them."""
    world = World(pool("cpu", 3)).up()
    for _ in range(3):
        world.job()
    world.notify()
    for slot in range(3):
        world.done(slot, rss_bytes=120 * MIB)
    world.deaf_children = True
    world.commands.clear()
    world.job(memory_bytes=150 * MIB)
    world.notify()
    world.notify()
    assert len(world.took(cmd.Send)) == 1


def test_a_job_with_room_enough_gets_the_existing_child() -> None:
    """Up to half of its limit may be taken."""
    world = left_behind(60 * MIB)
    world.job(memory_bytes=150 * MIB)
    world.notify()
    assert world.took(cmd.Assign)


def test_memory_kept_by_jobs_of_the_same_limit_is_shared() -> None:
    """A library that each of them uses replaces no child."""
    world = left_behind(120 * MIB)
    world.job()
    world.notify()
    assert world.took(cmd.Assign)


def test_a_prefetched_job_without_room_is_not_charged() -> None:
    """The memory for which it was killed was in its child before it."""
    world = World(pool("cpu", 1)).up().fast()
    world.job()
    world.job(memory_bytes=150 * MIB)
    world.notify()
    slot = world.machine.slots[0]
    assert len(slot.queue) == 2
    world.done(0, rss_bytes=120 * MIB)
    world.settled.clear()
    world.step(inp.OverMemory(0, slot.queue[0].seq, 160 * MIB))
    world.died(0, signal=signal.SIGKILL)
    (settlement,) = world.settled
    assert settlement.outcome is Outcome.INTERRUPTED
    assert "had left 100MiB of 150MiB" in str(settlement.evidence.reason)


def test_memory_left_by_others_does_not_use_up_a_soft_limit() -> None:
    """The handler could release none of it: it begins in a fresh child."""
    world = left_behind(100 * MIB, SOFT)
    job = world.job()
    world.notify()
    assert [(c.slot, c.frame) for c in world.took(cmd.Send)] == [(0, Retire())]
    (assigned,) = world.took(cmd.Assign)
    assert [frame.id for frame in assigned.frames] == [job.id]


def test_up_to_half_of_a_soft_limit_may_be_shared() -> None:
    """A child is not replaced for a library that each job uses."""
    world = left_behind(60 * MIB, SOFT)
    world.job()
    world.notify()
    assert world.took(cmd.Assign)


def test_a_soft_limit_used_up_by_others_is_not_raised_in_a_prefetched_job() -> None:
    """It would be charged for memory that was there before it.

    It begins anew instead.
    """
    world = World(pool("cpu", 1), limits=SOFT).up().fast()
    for _ in range(2):
        world.job()
    world.notify()
    slot = world.machine.slots[0]
    assert len(slot.queue) == 2
    world.done(0, rss_bytes=120 * MIB)
    world.settled.clear()
    over = inp.OverMemory(0, slot.queue[0].seq, 160 * MIB, soft=True)
    world.step(over)
    assert not world.took(cmd.SoftMemory)
    world.died(0, signal=signal.SIGKILL)
    (settlement,) = world.settled
    assert settlement.outcome is Outcome.INTERRUPTED
    assert "had left 100MiB of 150MiB" in str(settlement.evidence.reason)
