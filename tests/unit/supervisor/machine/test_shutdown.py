"""A supervisor ends within its drain window and a little more, in every state.

Every state of the core meets every request, on a host where nothing makes progress: no
child dies, no zygote forks, no store answers.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Sequence

import pytest

from jobpool.core.events.supervisor import SupervisorDraining, SupervisorOutdated
from jobpool.core.formats import FORMAT
from jobpool.store.records.jobs import LeaseBatch
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.starting import FORK_LATE_AT_END_S
from jobpool.supervisor.machine.dispatch.fencing import published_ttl_s
from jobpool.supervisor.machine.machine import Machine
from jobpool.supervisor.machine.shutdown import (
    ENDING,
    GIVE_UP_S,
    REQUESTS,
    STORE_PATIENCE_S,
    Mode,
    Request,
)
from jobpool.supervisor.machine.state.slot import IGNORE, SlotState
from support.machine.world import World, pool

DRAIN_S = 2.0
TTL_S = published_ttl_s(5.0)
TERM, QUIT = inp.Drain("SIGTERM"), inp.Stop("SIGQUIT")


def world_of() -> World:
    """Return a host on which nothing makes progress."""
    world = World(pool("cpu", 2, drain_s=DRAIN_S), pool("io", 1, drain_s=1.0))
    world.deaf_children = True
    return world


def up() -> World:
    """Return one with idle children."""
    return world_of().up()


def busy() -> World:
    """Return one whose children have jobs, and more wait."""
    world = up()
    for _ in range(4):
        world.job()
    world.job("io")
    world.notify()
    assert sum(len(slot.queue) for slot in world.machine.slots) == 3
    return world


def opening() -> World:
    """The store is not open yet."""
    world = world_of()
    world.machine = Machine(world.settings, pid=1, on_registry=lambda _r: None)
    return world


def loading() -> World:
    """No zygote has loaded the application."""
    return world_of()


def loading_one() -> World:
    """One has; its children are made, and the other loads forever."""
    world = world_of()
    world.step(inp.ZygoteLoaded("cpu", world.report))
    return world


def not_entered() -> World:
    """The store does not answer the run's entry."""
    world = world_of()
    for name in world.machine.pools:
        world.step(inp.ZygoteLoaded(name, world.report))
    return world


def frozen_zygotes() -> World:
    """They do not answer."""
    world = world_of()
    world.deaf_forks = True
    return world.up()


def starting() -> World:
    """Children do not become ready."""
    world = frozen_zygotes()
    for slot in world.machine.slots:
        world.step(inp.ChildForked(slot.number))
    return world


def out_of_means() -> World:
    """There is no descriptor or pid for a child."""
    world = frozen_zygotes()
    for slot in world.machine.slots:
        world.step(inp.ForkRefused(slot.number, "Too many open files"))
    return world


def zygote_lost() -> World:
    """One is gone."""
    world = busy()
    world.step(inp.ZygoteLost("cpu", "killed"))
    return world


def reloading() -> World:
    """The application is reloaded, forever, beside running jobs."""
    world = busy()
    world.step(inp.Reload(world.settings))
    return world


def reloaded() -> World:
    """It is reloaded; children are to be replaced, and do not end."""
    world = reloading()
    world.step(inp.ZygoteLoaded("cpu", world.report, reloading=True))
    for number in (0, 1):
        world.done(number)
    assert world.machine.slots[0].state is SlotState.RETIRING
    return world


def store_away() -> World:
    """A job has ended, and the store does not confirm its end."""
    world = busy()
    world.hold_settled = True
    world.done(0)
    return world


def asking() -> World:
    """Jobs were requested, and no answer comes."""
    world = up()
    world.hold_grants = True
    world.job()
    world.notify()
    return world


def killing() -> World:
    """The kernel does not let a killed child die."""
    world = busy()
    world.step(inp.CancelAsked((world.machine.slots[0].queue[0].lease.token,)))
    world.wait(0.1)
    assert world.machine.slots[0].state is SlotState.KILLED
    return world


def fenced(*, dies: bool = True) -> World:
    """Its leases could not be renewed, and what it gives back is not stored."""
    world = busy()
    world.step(inp.Renewed(world.now_s + TTL_S, TTL_S))
    world.hold_settled = True
    world.wait(TTL_S + 1.0)
    if dies:
        for slot in world.machine.slots:
            if slot.queue:
                world.died(slot.number, signal=signal.SIGKILL)
    return world


def fenced_beside_a_child_that_does_not_die() -> World:
    """The same, and the kernel does not let its children die."""
    return fenced(dies=False)


def draining() -> World:
    """TERM came half a drain window ago."""
    world = busy()
    world.step(TERM)
    world.wait(DRAIN_S / 2)
    return world


def stopping() -> World:
    """QUIT came just now."""
    world = busy()
    world.hold_settled = True
    world.step(QUIT)
    world.wait(0.5)
    return world


SITUATIONS: Sequence[Callable[[], World]] = (
    opening,
    loading,
    loading_one,
    not_entered,
    up,
    busy,
    frozen_zygotes,
    starting,
    out_of_means,
    zygote_lost,
    reloading,
    reloaded,
    store_away,
    asking,
    killing,
    fenced,
    fenced_beside_a_child_that_does_not_die,
    draining,
    stopping,
)
SIGNALS = (
    "TERM",
    "QUIT",
    "TERM TERM",
    "TERM QUIT",
    "QUIT TERM",
    "QUIT QUIT",
    "HUP TERM",
    "TERM HUP",
    "HUP QUIT",
)


def send(world: World, signals: str) -> None:
    """Send signals one after the other."""
    meaning = {"TERM": TERM, "QUIT": QUIT, "HUP": inp.Reload(world.settings)}
    for name in signals.split():
        world.step(meaning[name])


def seconds_to_the_end(world: World) -> float:
    """Let time pass until the end is commanded; return how long that took."""
    began_s = world.now_s
    while world.finish is None:
        moment_s = world.machine.next_deadline_s()
        assert moment_s < float("inf"), "it waits for ever"
        world.now_s = max(world.now_s, moment_s)
        world.step(inp.Tick())
    return world.now_s - began_s


@pytest.mark.parametrize(("mode", "request_"), list(itertools.product(Mode, Request)))
def test_the_table_of_requests_is_total(mode: Mode, request_: Request) -> None:
    """Every mode handles every request; an end that has begun is only hastened."""
    after = REQUESTS[mode][request_]
    assert after == IGNORE or Mode(after)
    if mode in ENDING:
        assert after in {IGNORE, Mode.STOPPING}
    elif mode is not Mode.ENDED and request_ is not Request.RELOAD:
        assert after in ENDING


@pytest.mark.parametrize("signals", SIGNALS)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_signals_end_a_supervisor_in_every_state_whatever_is_missing(
    situation: Callable[[], World], signals: str
) -> None:
    """Within the window and a little more; what is left is counted and logged."""
    world = situation()
    send(world, signals)
    assert seconds_to_the_end(world) <= DRAIN_S + GIVE_UP_S
    finish = world.finish
    assert finish is not None
    assert finish.error is None
    known = {job.lease.token for s in world.machine.slots for job in s.queue}
    unwritten = {s.token for s in world.settled} if world.hold_settled else set()
    asked = int(world.hold_grants)
    assert finish.leases_held >= len(known) + asked
    assert bool(finish.leases_held) >= bool(unwritten)
    assert finish.exit_code == (1 if finish.leases_held else 0)
    assert any(isinstance(event, SupervisorDraining) for event in world.said)
    assert world.machine.mode is Mode.ENDED
    assert not world.took(cmd.Finish)[1:]


def test_a_stop_does_not_wait_for_a_frozen_zygote() -> None:
    """It is killed soon, and its loss ends the wait for a child."""
    world = frozen_zygotes()
    world.step(QUIT)
    world.wait(FORK_LATE_AT_END_S)
    slots = [kill.slot for kill in world.took(cmd.KillZygote)]
    assert slots == [0, 1, 2]
    for slot in slots:
        world.step(inp.ForkRefused(slot, "its zygote is gone"))
    assert world.finish is not None
    assert world.finish.exit_code == 0


def test_a_stop_gives_up_on_the_store_before_a_long_window_is_over() -> None:
    """A stop by QUIT does not wait for a drain window of an hour."""
    world = World(pool("cpu", 1, drain_s=3600.0)).up()
    world.job()
    world.notify()
    world.hold_settled = True
    world.done(0)
    world.step(QUIT)
    assert seconds_to_the_end(world) == pytest.approx(STORE_PATIENCE_S)


@pytest.mark.parametrize("situation", [opening, loading, draining, stopping])
def test_a_reload_is_accepted_only_while_the_supervisor_runs(
    situation: Callable[[], World],
) -> None:
    """There is nothing to replace before, and nothing useful to replace after."""
    world = situation()
    world.took(cmd.StartZygote)
    world.step(inp.Reload(world.settings))
    assert not world.took(cmd.StartZygote)
    assert not world.machine.takes_reloads


# -- features of a newer release -------------------------------------------------------


@pytest.mark.parametrize("told", ["by a lease", "by a renewal"])
def test_an_outdated_supervisor_drains_and_says_why(told: str) -> None:
    """It leases nothing more, ends what it has, and ends with an error of its own."""
    world = busy()
    if told == "by a lease":
        world.step(inp.Granted({"cpu": 1}, LeaseBatch(outdated=True)))
    else:
        world.step(inp.Outdated())
    assert world.machine.mode is Mode.DRAINING
    said = [e for e in world.said if isinstance(e, SupervisorOutdated)]
    assert [(e.pid, e.format) for e in said] == [(1, FORMAT)]
    (draining,) = [e for e in world.said if isinstance(e, SupervisorDraining)]
    assert "newer release" in draining.reason
    world.commands.clear()
    world.notify()
    assert not any(isinstance(c, cmd.Lease) for c in world.commands)
    world.wait(DRAIN_S + GIVE_UP_S)
    assert world.finish is not None
    assert world.finish.outdated


def test_a_supervisor_that_is_told_again_drains_on() -> None:
    """Each renewal tells it: that is no second request, which would stop it."""
    world = busy()
    for _ in range(3):
        world.step(inp.Outdated())
    assert world.machine.mode is Mode.DRAINING
    assert len([e for e in world.said if isinstance(e, SupervisorOutdated)]) == 1


def test_a_supervisor_that_ends_anyway_is_not_outdated() -> None:
    """It was told to end: that is how it ended."""
    world = up()
    world.step(TERM)
    world.step(inp.Outdated())
    assert not any(isinstance(e, SupervisorOutdated) for e in world.said)
    world.wait(DRAIN_S + GIVE_UP_S)
    assert world.finish is not None
    assert not world.finish.outdated


def estimates(world: World) -> list[float | None]:
    return [e.estimate_s for e in world.said if isinstance(e, SupervisorDraining)]


def test_a_drain_says_how_long_it_probably_takes() -> None:
    """By what the kinds have usually taken, and how long the attempts run already."""
    world = busy()
    for known in world.machine.pools.values():
        known.durations_of(f"{known.name}.work").took([1.5] * 32)
    world.wait(0.5)
    world.step(TERM)
    (about,) = estimates(world)
    assert about is not None
    assert 0.5 < about <= 1.0


def test_a_drain_that_cannot_be_foreseen_says_nothing() -> None:
    """A kind that nobody knows; or an attempt that takes longer than all before it."""
    unknown = busy()
    unknown.step(TERM)
    late = busy()
    for known in late.machine.pools.values():
        known.durations_of(f"{known.name}.work").took([0.1] * 32)
    late.wait(0.5)
    late.step(TERM)
    assert estimates(unknown) == estimates(late) == [None]


def test_an_end_says_how_long_it_took() -> None:
    world = busy()
    world.step(TERM)
    world.wait(DRAIN_S + GIVE_UP_S)
    assert world.finish is not None
    assert world.finish.took_s == pytest.approx(DRAIN_S + GIVE_UP_S, abs=0.2)
