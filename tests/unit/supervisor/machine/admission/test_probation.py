"""How long a suspect runs alone, what it waits for, and when one is requested."""

from __future__ import annotations

import pytest

from jobpool.core.events.jobs import JobCleared
from jobpool.core.jobs.job import PastAttempt
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.suspects import PROBATION_MAX_S, PROBATION_S
from jobpool.store.records.jobs import LeaseBatch
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from support.machine.world import World, pool


def running(world: World) -> set[int]:
    """Return the ids of the jobs that have begun and not ended."""
    return {
        job.lease.id
        for slot in world.machine.slots
        for job in slot.queue
        if job.started_s is not None
    }


def suspect(world: World, losses: int) -> int:
    """Put a suspect that was lost so often in the store's queue."""
    past = (PastAttempt(Outcome.LOST, None, 0),) * losses
    return world.job(suspect=True, history=past, timeout_s=9000.0).id


def end(world: World, job_id: int) -> None:
    """Let a job come to its end."""
    slots = world.machine.slots
    world.done(
        next(s.number for s in slots if s.queue and s.queue[0].lease.id == job_id)
    )


@pytest.fixture
def world() -> World:
    """Two pools, and a supervisor that is old enough for suspects."""
    world = World(pool("cpu", 3), pool("io", 2)).up()
    world.takes_back = True
    world.wait(PROBATION_S + 1)
    world.took(cmd.Lease)
    return world


def test_a_job_lost_more_often_is_cleared_later(world: World) -> None:
    """In proportion to its losses; nothing begins meanwhile."""
    accused = suspect(world, 4)
    world.notify()
    later = world.job("io").id
    world.notify()
    world.wait(4 * PROBATION_S - 0.5)
    assert running(world) == {accused}
    assert world.took(cmd.Clear) == []
    world.wait(0.5)
    assert [one.id for one in world.took(cmd.Clear)] == [accused]  # type: ignore[attr-defined]
    assert running(world) == {accused, later}
    assert [event.ran_s for event in world.said if isinstance(event, JobCleared)] == [
        4 * PROBATION_S
    ]


def test_a_job_lost_more_often_waits_until_the_others_have_ended(world: World) -> None:
    """Beside them nothing could be proved; it begins as soon as they have ended."""
    before = world.job(timeout_s=9000.0).id
    world.notify()
    world.wait(2 * PROBATION_S)
    accused = suspect(world, 4)
    world.notify()
    world.wait(PROBATION_S)
    assert running(world) == {before}
    end(world, before)
    assert running(world) == {accused}


def test_a_suspect_does_not_wait_forever(world: World) -> None:
    """For as much longer as its probation is; first suspects do not wait."""
    before = world.job(timeout_s=9000.0).id
    world.notify()
    world.wait(2 * PROBATION_S)
    accused = suspect(world, 4)
    world.notify()
    world.wait(3 * PROBATION_S - 0.5)
    assert running(world) == {before}
    world.wait(0.5)
    assert running(world) == {before, accused}
    world.wait(4 * PROBATION_S)
    at_once = suspect(world, 2)
    world.notify()
    assert running(world) == {before, accused, at_once}


def test_after_the_longest_probation_others_go_on_beside_it(world: World) -> None:
    """It stays a suspect, so that no other one begins; its end clears it."""
    accused = suspect(world, 9)
    world.notify()
    later = world.job("io").id
    world.wait(PROBATION_MAX_S - 0.5)
    assert running(world) == {accused}
    world.wait(1)
    assert running(world) == {accused, later}
    assert world.took(cmd.Clear) == []
    end(world, accused)
    assert world.settled[-1].suspect is False
    assert len([event for event in world.said if isinstance(event, JobCleared)]) == 1


def test_a_supervisor_old_enough_requests_suspects_at_once() -> None:
    """They wait, and it was given nothing else meanwhile."""
    world = World().up()
    asked = world.took(cmd.Lease)[-1]
    world.step(inp.Granted(asked.wanted, LeaseBatch(suspects_wait=True)))  # type: ignore[attr-defined]
    world.hold_grants = True
    world.wait(PROBATION_S - 0.5)
    world.took(cmd.Lease)
    accused = suspect(world, 2)
    world.machine._dispatcher.waiting = False
    for one in world.machine.pools.values():
        one.polling.next_s = 1e9
        one.asked = 0
    world.hold_grants = False
    world.wait(1)
    assert running(world) == {accused}


def test_a_suspect_alone_is_requested_only_when_nothing_is_leased(world: World) -> None:
    """Beside others it is not alone, whatever comes with it."""
    world.notify()
    assert world.took(cmd.Lease)[-1].alone  # type: ignore[attr-defined]
    job = world.job().id
    world.notify()
    world.notify()
    assert not world.took(cmd.Lease)[-1].alone  # type: ignore[attr-defined]
    end(world, job)
    world.notify()
    assert world.took(cmd.Lease)[-1].alone  # type: ignore[attr-defined]
