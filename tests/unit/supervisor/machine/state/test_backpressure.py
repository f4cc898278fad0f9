"""Large ends: a pool that makes more than are written waits, and no other does."""

from __future__ import annotations

import pytest

from jobpool.core.jobs.job import Evidence, JobState, Settlement
from jobpool.sandbox.protocol.messages import Raised
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state.backpressure import (
    SMALL_BYTES,
    UNWRITTEN_MAX_BYTES,
    Unwritten,
    is_large,
)
from jobpool.supervisor.machine.state.durations import AHEAD_BYTES, AHEAD_MAX, Durations
from support.machine.world import World, pool

HALF_BYTES = UNWRITTEN_MAX_BYTES // 2
MANY = UNWRITTEN_MAX_BYTES // SMALL_BYTES


def ended(token: int, result: bytes | None = None, **evidence: str) -> Settlement:
    """Return an end."""
    return Settlement(
        id=token,
        token=token,
        state=JobState.SUCCEEDED,
        result=result,
        evidence=Evidence(**evidence),
    )


def owing(*sizes: int) -> Unwritten:
    """Return what a pool owes after ends of these sizes, with tokens from 1."""
    unwritten = Unwritten()
    for token, size in enumerate(sizes, 1):
        unwritten.add(ended(token, b"x" * size))
    return unwritten


@pytest.mark.parametrize(
    ("end", "large"),
    [
        (ended(1), False),
        (ended(1, b"x" * SMALL_BYTES), False),
        (ended(1, b"x" * SMALL_BYTES + b"x"), True),
        (ended(1, output="x" * (SMALL_BYTES + 1)), True),
        (ended(1, b"x" * SMALL_BYTES, output="x"), True),
    ],
)
def test_the_size_of_an_end_is_its_result_and_output(
    end: Settlement, large: bool
) -> None:
    """Everything that has to be written counts."""
    assert is_large(end) == large


@pytest.mark.parametrize(
    ("sizes", "much"),
    [
        ([], False),
        ([SMALL_BYTES + 1] * (MANY - 1), False),
        ([SMALL_BYTES + 1] * MANY, True),
        ([UNWRITTEN_MAX_BYTES - 1], False),
        ([HALF_BYTES] * 2, True),
    ],
)
def test_many_ends_or_a_few_huge_ones_are_too_much(
    sizes: list[int], much: bool
) -> None:
    """Either keeps the store busy until their ends are known."""
    assert owing(*sizes).is_much == much


def test_room_is_reported_once() -> None:
    """Only an answer that makes room does so; an answer for others does not."""
    unwritten = owing(*[HALF_BYTES] * 3)
    assert not unwritten.written([9])
    assert not unwritten.written([1])
    assert unwritten.written([2])
    assert not unwritten.is_much
    assert not unwritten.written([3])


def in_trouble(result_bytes: int, jobs: int) -> World:
    """Return a world whose store writes nothing, with that many jobs for a pool."""
    world = World(pool("cpu", 1), pool("io", 1)).up()
    world.hold_settled = True
    for _ in range(jobs):
        world.job()
    world.notify()
    while world.machine.slots[0].queue:
        world.done(0, result=b"x" * result_bytes, duration_s=0.5)
    return world


@pytest.mark.parametrize(
    ("size", "begun"), [(UNWRITTEN_MAX_BYTES // 16, 16), (HALF_BYTES, 2)]
)
def test_a_pool_begins_nothing_while_it_has_much_to_write(
    size: int, begun: int
) -> None:
    """It requests no lease either; once there is room again, it does both."""
    world = in_trouble(size, 40)
    assert sum(end.result is not None for end in world.settled) == begun
    world.took(cmd.Lease)
    world.wait(5.0)
    assert all("cpu" not in asked.wanted for asked in world.took(cmd.Lease))
    world.written(next(end for end in world.settled if end.result))
    assert len(world.machine.slots[0].queue) == 1


def test_other_pools_are_not_affected_by_large_ends() -> None:
    """Their ends are not the ones that wait to be written."""
    world = in_trouble(HALF_BYTES, 40)
    world.job("io")
    world.notify()
    assert len(world.machine.slots[1].queue) == 1


def test_small_ends_stop_no_pool() -> None:
    """A store that writes nothing for a while does not by itself stop a pool."""
    assert len(in_trouble(SMALL_BYTES, 40).settled) == 40


def test_of_jobs_with_large_results_fewer_wait_in_a_child() -> None:
    """Everything sent ahead may end before the first of them is written."""
    durations = Durations()
    durations.took([0.0001] * 8)
    assert durations.ahead == AHEAD_MAX
    durations.returned(AHEAD_BYTES // 3)
    assert durations.ahead == 3
    durations.returned(SMALL_BYTES + 1)
    assert durations.ahead == 3
    durations.returned(2 * AHEAD_BYTES)
    assert durations.ahead == 0
    for _ in range(30):
        durations.took([0.0001] * 8)
    assert durations.ahead == AHEAD_MAX


def owing_with_backlog() -> World:
    """Return a world whose pool owes much while leased jobs of it wait here."""
    world = World(pool("cpu", 1), pool("io", 1)).up().fast()
    world.hold_settled = True
    for _ in range(200):
        world.job()
    world.notify()
    while world.machine.slots[0].queue:
        world.done(0, result=b"x" * HALF_BYTES, duration_s=0.0001)
    assert world.machine.pools["cpu"].backlog
    return world


def test_leased_jobs_wait_for_writes_too_and_go_on_at_once() -> None:
    """If it were sent more, its pool would owe still more.

    Once there is room, it is sent.
    """
    world = owing_with_backlog()
    slot, cpu = world.machine.slots[0], world.machine.pools["cpu"]
    waiting = list(cpu.backlog)
    world.step(inp.Notified())
    assert list(cpu.backlog) == waiting
    world.hold_grants = True
    for end in [end for end in world.settled if is_large(end)]:
        assert not slot.queue
        world.written(end)
        if not cpu.unwritten.is_much:
            break
    assert slot.queue[0] is waiting[0]


def test_a_pool_that_waits_for_its_writes_is_not_slow() -> None:
    """A job that waits too long is handed back; its kind counts as fast as before."""
    world = owing_with_backlog()
    before = world.machine.pools["cpu"].durations.p95_s
    world.wait(1.5)
    assert not world.machine.pools["cpu"].backlog
    assert world.machine.pools["cpu"].durations.p95_s == before


def test_after_a_large_end_fewer_are_sent_ahead() -> None:
    """All of them may bring as much before the first is written."""
    world = World(pool("cpu", 1)).up().fast()
    world.job()
    world.notify()
    world.done(0, result=b"x" * (AHEAD_BYTES // 3), duration_s=0.0001)
    for _ in range(200):
        world.job()
    world.notify()
    assert len(world.machine.slots[0].queue) == 1 + 3


def test_the_output_of_an_unsuccessful_end_counts() -> None:
    """It is written with it."""
    world = World(pool("cpu", 1)).up()
    world.hold_settled = True
    count = UNWRITTEN_MAX_BYTES // (2 * SMALL_BYTES)
    for _ in range(count + 9):
        world.job()
    world.notify()
    while world.machine.slots[0].queue:
        assert len(world.settled) < count
        raised = Raised(["builtins.ValueError"], "no", "")
        world.done(0, error=raised, output=b"x" * 2 * SMALL_BYTES, duration_s=0.5)
    assert len(world.settled) == count


def test_a_suspect_is_sent_whatever_its_pool_has_to_write() -> None:
    """All pools wait until it has had its turn: it must not wait for a disk."""
    world = World(pool("cpu", 2), pool("io", 1)).up()
    world.wait(120.0)  # the probation after a start is over
    world.hold_settled = True
    for _ in range(2):
        world.job()
    world.notify()
    world.done(0, result=b"x" * HALF_BYTES)
    suspect = world.job(suspect=True)
    world.notify()
    world.done(1, result=b"x" * HALF_BYTES)
    assert world.machine.pools["cpu"].unwritten.is_much
    running = [job.lease.id for slot in world.machine.slots for job in slot.queue]
    assert running == [suspect.id]


def test_a_pool_that_waits_for_its_writes_is_not_idle() -> None:
    """That is no reason to end its children."""
    waiting = in_trouble(HALF_BYTES, 2).machine.pools["cpu"]
    idle = in_trouble(SMALL_BYTES, 2).machine.pools["cpu"]
    for moment_s in (10.0, 100.0):
        waiting_s, idle_s = waiting.idle_for_s(moment_s), idle.idle_for_s(moment_s)
    assert (waiting_s, idle_s) == (0.0, 90.0)
