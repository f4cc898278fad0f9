"""Jobs that are leased before a slot is free: for whom, for how long, and till when."""

from __future__ import annotations

import pytest

from jobpool.core.job import Lease
from jobpool.supervisor import messages as m
from jobpool.supervisor.pool import Pool
from jobpool.supervisor.tempo import BRISK_S
from world import World, pool


def brisk(slots: int = 1, *, seconds: float = 0.05) -> World:
    """Return a world whose slots are all busy, with jobs that took so long so far."""
    world = World(pool("cpu", slots)).up()
    for _ in range(16):
        world.job()
        world.ring()
        world.done(0, duration_s=seconds)
    for _ in range(slots):
        world.job()
    world.ring()
    world.settled.clear()
    return world


def backlog(world: World) -> list[Lease]:
    """Return what is leased and waits."""
    return [job.lease for job in cpu(world).backlog]


def cpu(world: World) -> Pool:
    """Return the pool."""
    return world.machine.pools["cpu"]


def handed_back(world: World) -> list[int]:
    """Return the jobs that went back to the store without an attempt."""
    return [one.id for one in world.settled if one.outcome is None]


def test_the_next_job_of_a_slot_is_there_when_it_is_free() -> None:
    """It begins in the same step: nothing is asked of the store in between."""
    world = brisk()
    following = world.job()
    world.ring()
    assert backlog(world) == [following]
    world.took(m.Lease)
    world.done(0)
    assert [one.id for one in world.sent[0]][-1] == following.id
    assert world.machine.slots[0].queue[0].lease is following


@pytest.mark.parametrize(
    ("seconds", "reserve"), [(0.0021, 7), (0.005, 3), (0.05, 1), (0.1, 0), (60.0, 0)]
)
def test_the_reserve_is_one_job_or_little_work(seconds: float, reserve: int) -> None:
    """What is kept from others is little more than a lease takes."""
    world = brisk(seconds=seconds)
    for _ in range(20):
        world.job()
    world.ring()
    assert len(backlog(world)) == reserve


def test_nothing_is_leased_behind_what_already_lasts() -> None:
    """Its kind may be brisk; this attempt is not."""
    world = brisk()
    world.wait(BRISK_S)
    world.job()
    world.ring()
    assert backlog(world) == []


def test_what_waits_behind_an_attempt_that_lasts_is_handed_back() -> None:
    """Another supervisor may have a free slot, and an operator the last word."""
    world = brisk()
    following = world.job()
    world.ring()
    world.wait(BRISK_S / 2)
    assert handed_back(world) == []
    world.wait(BRISK_S / 2)
    assert handed_back(world) == [following.id]


def test_a_slot_that_is_free_soon_keeps_what_waits() -> None:
    """One attempt that lasts is no reason, beside others that do not."""
    world = brisk(2)
    following = world.job()
    world.ring()
    world.wait(BRISK_S * 0.75)
    world.done(1)  # takes it
    last = world.job()
    world.ring()
    assert backlog(world) == [last]
    world.wait(BRISK_S * 0.75)  # the other one lasts now
    assert handed_back(world) == []
    world.done(1)
    assert world.machine.slots[1].queue[0].lease is last
    assert following.id in [one.id for one in world.settled]


def test_what_expires_while_it_waits_is_not_begun() -> None:
    """It goes back to the store, which cancels it; the one behind it begins."""
    world = brisk(seconds=0.005)
    expiring = world.job(leased_at_ms=1000, expires_at_ms=1050)
    begun_before = world.job(leased_at_ms=1000, expires_at_ms=1050, attempt=2)
    in_time = world.job(leased_at_ms=1000, expires_at_ms=2000)
    world.ring()
    assert backlog(world) == [expiring, begun_before, in_time]
    world.wait(0.05)
    world.done(0)
    assert handed_back(world) == [expiring.id]
    assert world.machine.slots[0].queue[0].lease is begun_before
    world.done(0)
    assert world.machine.slots[0].queue[0].lease is in_time


def test_a_job_expires_while_its_host_sleeps() -> None:
    """Monotonic time stands still then; the store's does not."""
    world = brisk()
    expiring = world.job(leased_at_ms=1000, expires_at_ms=3_000)
    world.ring()
    world.slept_s = 10.0
    world.done(0)
    assert handed_back(world) == [expiring.id]


def test_what_is_canceled_while_it_waits_is_handed_back_at_once() -> None:
    """The running attempt goes on."""
    world = brisk()
    canceled = world.job()
    world.ring()
    world.step(m.CancelAsked((canceled.token,)))
    assert handed_back(world) == [canceled.id]
    assert world.machine.slots[0].queue


def test_what_expires_soon_is_not_sent_ahead() -> None:
    """In its child it could not be stopped in time."""
    world = World(pool("cpu", 1)).up().fast()
    running = world.job()
    world.ring()
    soon = world.job(leased_at_ms=1000, expires_at_ms=1040)
    later = world.job(leased_at_ms=1000, expires_at_ms=9000)
    world.ring()
    assert [job.lease for job in world.machine.slots[0].queue] == [running]
    world.done(0)
    assert [job.lease for job in world.machine.slots[0].queue] == [soon, later]
