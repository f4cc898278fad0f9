"""Jobs leased before a slot is free: for which slot, and for how long."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.jobs.job import Lease
from jobpool.core.rules.policy import Policy
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state.durations import BRISK_S
from jobpool.supervisor.machine.state.pool import Pool
from support.machine.world import World, pool


def brisk(slots: int = 2, *, seconds: float = 0.05) -> World:
    """Return a world whose slots are all busy, with jobs that took so long so far."""
    world = World(pool("cpu", slots))
    other = HandlerSpec(kind="cpu.other", pool="cpu", policy=Policy())
    world.report = replace(world.report, handlers=(*world.report.handlers, other))
    world.up()
    for _ in range(16):
        world.job()
        world.notify()
        world.done(0, duration_s=seconds)
    for _ in range(slots):
        world.job()
    world.notify()
    world.settled.clear()
    return world


def cpu(world: World) -> Pool:
    """Return the pool."""
    return world.machine.pools["cpu"]


def running(world: World, slot: int) -> Lease:
    """Return what a slot runs."""
    return world.machine.slots[slot].queue[0].lease


def waiting(world: World) -> list[Lease]:
    """Return what is leased and in no child."""
    return [job.lease for job in cpu(world).backlog]


def ahead(world: World, slot: int) -> list[Lease]:
    """Return what waits in a slot's child."""
    return [job.lease for job in list(world.machine.slots[slot].queue)[1:]]


def handed_back(world: World) -> list[int]:
    """Return the jobs that went back to the store without an attempt."""
    return [one.id for one in world.settled if one.outcome is None]


def test_the_next_job_is_at_hand_when_a_slot_is_free() -> None:
    """It begins in the same step: nothing is requested from the store in between."""
    world = brisk()
    following = world.job()
    world.notify()
    assert waiting(world) == [following]
    world.took(cmd.Lease)
    world.done(1)
    assert running(world, 1) is following
    assert world.sent[1][-1].id == following.id


@pytest.mark.parametrize(
    ("seconds", "reserve"), [(0.0021, 14), (0.005, 6), (0.05, 2), (0.1, 0), (60.0, 0)]
)
def test_the_reserve_is_one_job_per_slot_or_little_work(
    seconds: float, reserve: int
) -> None:
    """Other supervisors are deprived of little more than a lease takes."""
    world = brisk(seconds=seconds)
    for _ in range(40):
        world.job()
    world.notify()
    assert reserve / 2 <= len(waiting(world)) <= reserve


@pytest.mark.parametrize(
    ("slots", "seconds", "reserve"), [(64, 0.2, 5), (128, 0.2, 10), (128, 3.0, 0)]
)
def test_of_many_attempts_that_take_longer_some_end_soon(
    slots: int, seconds: float, reserve: int
) -> None:
    """So many jobs are at hand as probably end while others are leased."""
    world = brisk(slots, seconds=seconds)
    for _ in range(40):
        world.job()
    world.notify()
    assert len(waiting(world)) == reserve


def many_lasting(*, reserve: int) -> World:
    """Return a world with so many jobs leased ahead of attempts of 0.2 s."""
    world = brisk(64, seconds=0.2)
    for _ in range(40):
        world.job()
    world.notify()
    assert len(waiting(world)) == reserve
    world.took(cmd.Lease)
    return world


def test_the_next_job_is_at_hand_where_many_run() -> None:
    """It begins in the same step; the reserve is filled again for several at once."""
    world = many_lasting(reserve=5)
    following, *others = waiting(world)
    world.wait(0.05)
    world.done(7, duration_s=0.2)
    assert running(world, 7) is following
    assert waiting(world) == others
    assert world.took(cmd.Lease) == []
    world.done(8, duration_s=0.2)
    assert [lease.wanted for lease in world.took(cmd.Lease)] == [{"cpu": 2}]


def test_nothing_waits_where_none_of_many_has_begun_lately() -> None:
    """They began together, and others may have free slots; it is not leased again."""
    world = many_lasting(reserve=5)
    held = {lease.id for lease in waiting(world)}
    world.wait(BRISK_S)
    assert set(handed_back(world)) == held
    world.wait(BRISK_S)
    assert world.took(cmd.Lease) == []
    world.done(3, duration_s=0.2)
    assert len(waiting(world)) == 5


def test_an_attempt_that_lasts_much_longer_than_others_does_not_count() -> None:
    """Of 64 only a few still run as long as usual."""
    world = brisk(64, seconds=0.2)
    world.wait(0.35)
    for slot in range(8):
        world.job()
        world.notify()
        world.done(slot, duration_s=0.2)
    world.wait(0.05)
    for _ in range(40):
        world.job()
    world.notify()
    assert waiting(world) == []


def test_one_of_many_jobs_waits_in_each_child() -> None:
    """Not even a message comes between it and the one before it."""
    world = brisk()
    jobs = [world.job() for _ in range(10)]
    world.notify()
    assert [ahead(world, 0), ahead(world, 1)] == [[jobs[0]], [jobs[1]]]


def test_the_last_jobs_go_to_the_first_free_child() -> None:
    """A job that waited in a child could be behind the slower of two."""
    world = brisk()
    last = world.job()
    world.notify()
    assert [ahead(world, 0), ahead(world, 1)] == [[], []]
    assert waiting(world) == [last]


def test_jobs_of_unknown_duration_do_not_wait_in_a_child() -> None:
    """It could not be predicted when the job behind it begins."""
    world = brisk()
    for _ in range(10):
        world.job(kind="cpu.other")
    world.notify()
    assert [ahead(world, 0), ahead(world, 1)] == [[], []]
    assert len(waiting(world)) == 2 * cpu(world).size


def test_nothing_is_leased_behind_an_attempt_that_takes_long() -> None:
    """Its kind may be quick; this attempt is not."""
    world = brisk()
    world.wait(BRISK_S)
    world.job()
    world.notify()
    assert waiting(world) == []


def test_jobs_waiting_behind_long_attempts_are_handed_back() -> None:
    """Another supervisor may have a free slot, and an operator may want to cancel."""
    world = brisk()
    following = world.job()
    world.notify()
    world.wait(BRISK_S / 2)
    assert handed_back(world) == []
    world.wait(BRISK_S / 2)
    assert handed_back(world) == [following.id]


def test_a_job_waiting_in_a_child_behind_a_long_attempt_is_handed_back() -> None:
    """It is recalled, and finds every slot busy for longer."""
    world = brisk()
    for _ in range(10):
        world.job()
    world.notify()
    held = {lease.id for slot in (0, 1) for lease in ahead(world, slot)}
    held |= {lease.id for lease in waiting(world)}
    world.wait(BRISK_S)
    for slot in (0, 1):
        assert cmd.Recall(slot, world.machine.slots[slot].seq) in world.commands
        world.recalled(slot, list(world.machine.slots[slot].queue)[1:])
    world.wait(BRISK_S)
    assert set(handed_back(world)) == held


def test_jobs_wait_on_for_a_slot_that_is_free_soon() -> None:
    """One long attempt is no reason, beside others that are short."""
    world = brisk()
    world.wait(BRISK_S * 0.75)
    world.done(1)
    world.job()
    world.notify()
    last = world.job()
    world.notify()
    assert waiting(world) == [last]
    world.wait(BRISK_S * 0.75)  # the first slot's lasts now
    assert handed_back(world) == []
    world.done(1)
    assert running(world, 1) is last


def test_a_job_that_expires_while_it_waits_does_not_begin() -> None:
    """It goes back to the store, which cancels it.

    A job that began before is not affected.
    """
    world = brisk()
    world.job(leased_at_ms=1000, expires_at_ms=1050)
    begun_before = world.job(leased_at_ms=1000, expires_at_ms=1050, attempt=2)
    world.notify()
    expiring = waiting(world)[0]
    world.wait(0.05)
    world.done(1)
    assert handed_back(world) == [expiring.id]
    assert running(world, 1) is begun_before


def test_a_waiting_job_that_expires_later_begins() -> None:
    """Its time is not over yet."""
    world = brisk()
    in_time = world.job(leased_at_ms=1000, expires_at_ms=1060)
    world.notify()
    world.wait(0.05)
    world.done(1)
    assert running(world, 1) is in_time


def test_a_slow_grant_leaves_a_job_less_time_to_begin() -> None:
    """The store's clock went on while the commit and the answer took their time."""
    world = brisk()
    world.hold_grants = True
    expiring = world.job(leased_at_ms=1000, expires_at_ms=1060)
    world.notify()
    world.wait(0.05)
    world.hold_grants = False
    world.answer_grant()
    world.wait(0.02)
    world.done(1)
    assert handed_back(world) == [expiring.id]


def test_a_job_expires_while_its_host_sleeps() -> None:
    """Monotonic time stands still then; the store's does not."""
    world = brisk()
    expiring = world.job(leased_at_ms=1000, expires_at_ms=3000)
    world.notify()
    world.slept_s = 10.0
    world.done(1)
    assert handed_back(world) == [expiring.id]


def test_a_job_canceled_while_it_waits_is_handed_back_at_once() -> None:
    """The running attempts go on."""
    world = brisk()
    canceled = world.job()
    world.notify()
    world.step(inp.CancelAsked((canceled.token,)))
    assert handed_back(world) == [canceled.id]
    assert cpu(world).busy == cpu(world).size


def test_a_job_that_may_expire_is_not_sent_ahead() -> None:
    """In its child it could not be stopped in time, whatever happens meanwhile."""
    world = World(pool("cpu", 1)).up().fast()
    head = world.job()
    world.notify()
    expiring = world.job(leased_at_ms=1000, expires_at_ms=9_999_999)
    later = world.job()
    world.notify()
    assert running(world, 0) is head
    assert ahead(world, 0) == []
    world.done(0)
    assert running(world, 0) is expiring
    assert ahead(world, 0) == [later]
