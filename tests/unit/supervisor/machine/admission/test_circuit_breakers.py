"""Suspects and crashing kinds in the supervisor's core: what begins, and when."""

from __future__ import annotations

import msgspec
import pytest

from jobpool.core.events.flow import KindResumed, KindSlowed
from jobpool.core.events.jobs import JobCleared
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.circuit_breaker import BreakerState, Saved
from jobpool.core.rules.policy import Policy
from jobpool.core.rules.suspects import PROBATION_S
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


def suspect(world: World, pool_name: str = "cpu") -> int:
    """Put a suspect in the store's queue."""
    return world.job(pool_name, suspect=True).id


@pytest.fixture
def world() -> World:
    """Two pools, and a supervisor that is old enough for suspects."""
    world = World(pool("cpu", 3), pool("io", 2)).up()
    world.wait(PROBATION_S + 1)
    world.took(cmd.Lease)
    return world


def test_a_young_supervisor_takes_no_suspect() -> None:
    """If it dies by itself soon after its start, no job must be blamed for it."""
    world = World().up()
    assert not world.took(cmd.Lease)[0].suspects  # type: ignore[attr-defined]
    world.wait(PROBATION_S + 1.5)
    assert world.took(cmd.Lease)[-1].suspects  # type: ignore[attr-defined]


def test_a_suspect_waits_until_the_others_are_old_and_begins_alone(
    world: World,
) -> None:
    """Earlier jobs have had their time; later ones wait."""
    before = world.job().id
    world.notify()
    accused = suspect(world)
    beside = world.job("io").id
    world.notify()
    assert running(world) == {before, beside}
    world.wait(PROBATION_S - 1)
    later = world.job("io").id
    world.notify()
    assert running(world) == {before, beside}
    world.wait(1)
    assert running(world) == {before, beside, accused}
    world.wait(PROBATION_S - 0.5)
    assert later not in running(world)
    assert world.took(cmd.Clear) == []
    world.wait(0.5)
    (clear,) = world.took(cmd.Clear)
    assert clear.id == accused  # type: ignore[attr-defined]
    assert running(world) == {before, beside, accused, later}
    assert [event.ran_s for event in world.said if isinstance(event, JobCleared)] == [
        PROBATION_S
    ]


def test_a_suspect_that_ends_is_cleared_by_its_end(world: World) -> None:
    """Its settlement says so, and the others go on at once."""
    suspect(world)
    world.notify()
    later = world.job().id
    world.notify()
    assert later not in running(world)
    world.done(next(s.number for s in world.machine.slots if s.queue))
    assert world.settled[-1].suspect is False
    assert running(world) == {later}
    assert any(isinstance(event, JobCleared) for event in world.said)
    assert world.took(cmd.Clear) == []


def test_a_suspect_that_waits_too_long_goes_back(world: World) -> None:
    """Jobs that never grow old beside it do not hold the supervisor forever."""
    world.job()
    world.notify()
    world.machine.slots[0].queue[0].started_s = 1e9
    accused = suspect(world)
    world.notify()
    world.wait(4 * PROBATION_S)
    backs = [s.id for s in world.settled if s.outcome is None]
    assert backs == [accused]
    later = world.job().id
    world.notify()
    assert later in running(world)


def test_a_drain_gives_a_suspect_back_and_is_recorded(world: World) -> None:
    """A drain is recorded in the store before anything else can happen to us."""
    world.job()
    world.notify()
    accused = suspect(world)
    world.notify()
    world.step(inp.Drain("SIGTERM"))
    assert len(world.took(cmd.Leaving)) == 1
    assert [s.id for s in world.settled if s.outcome is None] == [accused]
    assert world.settled[-1].suspect is None


def crash_all(world: World) -> None:
    """Let every running attempt crash its child."""
    for slot in world.machine.slots:
        if slot.queue:
            behind = tuple(job.seq for job in list(slot.queue)[1:])
            world.died(slot.number, signal=11, never_begun=behind)


def test_a_kind_that_crashes_repeatedly_is_held_and_others_go_on(world: World) -> None:
    """Its jobs go back uncharged; one is tried after a pause."""
    world.takes_back = True
    for _ in range(10):
        world.job()
    world.notify()
    while running(world):
        crash_all(world)
    assert len(world.settled) - sum(s.outcome is None for s in world.settled) <= 7
    assert any(isinstance(event, KindSlowed) for event in world.said)
    fine = world.job("io").id
    world.notify()
    assert fine in running(world)
    assert world.took(cmd.Lease)[-1].held == {"cpu.work"}  # type: ignore[attr-defined]
    world.done(next(s.number for s in world.machine.slots if s.queue))
    world.wait(8)
    assert len(running(world)) == 1, "one at a time"
    world.done(next(s.number for s in world.machine.slots if s.queue))
    assert any(isinstance(event, KindResumed) for event in world.said)
    saves = world.took(cmd.SaveBreaker)
    assert saves[-1].saved.crashes == 0  # type: ignore[attr-defined]
    assert len(running(world)) == 2, "all that is left"


def test_of_a_thousand_jobs_that_crash_few_are_charged_in_an_hour() -> None:
    """Guarantee: a broken kind does not use up its jobs."""
    world = World(pool("cpu", 16), policy=Policy(max_crashes=1)).up()
    world.takes_back = True
    for _ in range(1000):
        world.job()
    world.notify()
    for _ in range(3600):
        while running(world):
            crash_all(world)
        world.wait(1)
    set_aside = [s for s in world.settled if s.state is JobState.QUARANTINED]
    assert {s.outcome for s in set_aside} == {Outcome.CRASHED}
    assert 20 <= len(set_aside) <= 60


def test_the_stores_view_counts_only_when_it_includes_our_reports(
    world: World,
) -> None:
    """A reading from before our last report is ignored; a later one is believed."""
    for _ in range(5):
        world.job()
    world.notify()
    while running(world):
        crash_all(world)
    saves = len(world.took(cmd.SaveBreaker))
    assert saves >= 5
    world.step(inp.BreakersSeen((), saves - 1))
    assert not [e for e in world.said if isinstance(e, KindResumed)]
    world.step(inp.BreakersSeen((), saves))
    assert [e for e in world.said if isinstance(e, KindResumed)]


def test_a_breaker_continues_in_the_next_run(world: World) -> None:
    """What the store has kept holds the kind back at once."""
    saved = Saved(
        kind="cpu.work", state=BreakerState.OPEN, crashes=20, last_job=9, wait_s=300.0
    )
    world.step(inp.BreakersSeen((saved,), 0))
    world.job()
    world.job()
    world.notify()
    assert running(world) == set()
    assert world.settled == []
    world.wait(301)
    assert len(running(world)) == 1


def test_a_kind_that_may_be_tried_and_has_nothing_due_costs_no_requests(
    world: World,
) -> None:
    """What the store reports every few seconds is no reason to request jobs there."""
    saved = Saved(
        kind="cpu.work", state=BreakerState.SLOWED, crashes=6, last_job=9, wait_s=0.0
    )
    world.step(inp.BreakersSeen((saved,), 0))
    world.notify()
    world.wait(10)
    world.took(cmd.Lease)
    for _ in range(5):
        world.step(inp.BreakersSeen((saved,), 0))
    assert not world.took(cmd.Lease)


def test_a_job_that_killed_another_supervisor_counts_as_a_crash(world: World) -> None:
    """A kind that kills hosts is held back, too."""
    for job_id in range(5):
        world.step(inp.HostKilled("cpu.work", job_id))
    world.job()
    world.notify()
    assert running(world) == set()


def test_a_kind_without_a_breaker_is_never_held_back() -> None:
    """``breaker_after = 0`` says so."""
    world = World(msgspec.structs.replace(pool("cpu", 4), breaker_after=0)).up()
    for _ in range(40):
        world.job()
    world.notify()
    while running(world):
        crash_all(world)
    assert len([s for s in world.settled if s.outcome is Outcome.CRASHED]) == 40


def test_a_reload_that_turns_a_breaker_off_lets_its_kind_go(world: World) -> None:
    """Also after the next reading of the store, where others may have it on."""
    world.takes_back = True
    for _ in range(10):
        world.job()
    world.notify()
    while running(world):
        crash_all(world)
    saves = [one.saved for one in world.took(cmd.SaveBreaker)]  # type: ignore[attr-defined]
    off = tuple(
        msgspec.structs.replace(p, breaker_after=0) for p in world.settings.pools
    )
    world.settings = msgspec.structs.replace(world.settings, pools=off)
    world.step(inp.Reload(world.settings))
    for name in world.machine.pools:
        world.step(inp.ZygoteLoaded(name, world.report, reloading=True))
    world.step(inp.BreakersSeen((saves[-1],), len(saves)))
    world.wait(0.1)
    assert running(world)
    assert not world.took(cmd.SaveBreaker)
