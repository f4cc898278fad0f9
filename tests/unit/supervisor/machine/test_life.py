"""The supervisor's core: how it starts, reloads, grows, drains and ends."""

from __future__ import annotations

import signal

import msgspec
import pytest

from jobpool.core.config.settings import Address, AlertSettings, SentrySettings
from jobpool.core.events.supervisor import Alarm, SupervisorDraining
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.limits import PoolLimits
from jobpool.core.rules.run_report import HostReport
from jobpool.errors import AppError, ConfigError
from jobpool.store.records.jobs import HeldBack, LeaseBatch
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.pools.application import (
    KILLED_MAX,
    RETRY_LAST_S,
    await_restart,
    reload_problem,
)
from support.machine.world import MIB, World, pool


def test_a_drain_lets_running_jobs_end_and_leases_nothing() -> None:
    """After a drain has begun nothing new starts, and running jobs are settled."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.notify()
    world.job()
    world.step(inp.Drain("SIGTERM"))
    world.notify()
    assert world.finish is None
    world.done(0)
    assert world.finish is not None
    assert world.finish.exit_code == 0
    assert len(world.queue["cpu"]) == 1


def test_jobs_are_interrupted_when_the_drain_window_is_over() -> None:
    """Jobs that still run when the window is over are interrupted, without penalty."""
    world = World(pool("cpu", 1, drain_s=3.0)).up()
    world.job()
    world.notify()
    world.step(inp.Drain("SIGTERM"))
    world.wait(2.9)
    assert not world.took(cmd.Kill)
    world.wait(0.2)
    assert world.took(cmd.Kill)
    world.died(0, signal=signal.SIGKILL)
    (settlement,) = world.settled
    assert (
        settlement.outcome,
        settlement.state,
    ) == (Outcome.INTERRUPTED, JobState.PENDING)
    assert world.finish is not None


def test_a_second_request_stops_at_once() -> None:
    """A second Ctrl-C does not wait for the drain window."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.notify()
    world.step(inp.Drain("SIGINT"))
    world.step(inp.Drain("SIGINT"))
    world.wait(0.01)
    assert world.took(cmd.Kill)


def test_a_drain_waits_for_the_store() -> None:
    """A drain ends before its window only when every settlement is durable."""
    world = World(pool("cpu", 1, drain_s=60.0)).up()
    world.job()
    world.notify()
    world.hold_settled = True
    world.done(0)
    world.step(inp.Drain("SIGTERM"))
    world.wait(59.0)
    assert world.finish is None
    world.step(inp.Settled(1))
    assert world.finish is not None
    assert world.finish.exit_code == 0


def test_a_stop_does_not_wait_forever() -> None:
    """A store that stays away cannot keep a stop from ending; that is logged."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.notify()
    world.hold_settled = True
    world.done(0)
    world.step(inp.Stop("SIGQUIT"))
    world.wait(11.0)
    assert world.finish is not None
    assert (world.finish.exit_code, world.finish.leases_held) == (1, 1)


def test_burst_ends_when_nothing_is_due() -> None:
    """With burst the supervisor drains once every pool came back empty-handed."""
    world = World(pool("cpu", 1), burst=True)
    jobs = [world.job() for _ in range(3)]
    world.up()
    for _ in jobs:
        assert world.finish is None
        world.done(0)
    world.wait(3.0)
    assert world.finish is not None
    assert len(world.settled) == 3


@pytest.mark.parametrize(
    ("opens_in_s", "reason"),
    [(59.0, None), (61.0, "quotas"), (None, "quotas")],
)
def test_burst_waits_a_minute_for_a_permit(opens_in_s, reason):
    """Not for a cap, which others may use for ever; and the log says why it ends."""
    world = World(pool("cpu", 1), burst=True)
    world.hold_grants = True
    world.up()
    world.step(inp.Granted({"cpu": 1}, LeaseBatch(), HeldBack(opens_in_s)))
    said = [one.reason for one in world.said if isinstance(one, SupervisorDraining)]
    assert [reason in one for one in said] == [True] * bool(reason)


def test_burst_continues_past_a_row_that_was_set_aside() -> None:
    """The store's answer is short, and says that there may be more."""
    world = World(pool("cpu", 1), burst=True)
    world.hold_grants = True
    world.up()
    world.job()
    world.step(inp.Granted({"cpu": 1}, LeaseBatch(next_due_in_s=0.0)))
    assert world.finish is None
    world.hold_grants = False
    world.wait(0.1)
    world.done(0)
    world.wait(3.0)
    assert world.finish is not None
    assert len(world.settled) == 1


def test_an_app_that_fails_to_load_ends_the_start() -> None:
    """Before anything ran, a broken application is an error, not a loop."""
    world = World()
    world.step(inp.ZygoteLost("cpu", "no module named jobs", "Traceback …"))
    assert world.finish is not None
    assert isinstance(world.finish.error, AppError)


def test_a_zygote_lost_later_is_replaced() -> None:
    """Once the application has run, a lost zygote is started again."""
    world = World().up()
    world.took(cmd.StartZygote)
    world.step(inp.ZygoteLost("cpu", "killed"))
    assert world.finish is None
    world.wait(1.0)
    assert len(world.took(cmd.StartZygote)) == 1


def test_an_unknown_pool_is_refused() -> None:
    """A handler whose pool is not configured ends the start, with the remedy."""
    world = World()
    spec = world.report.handlers[0]
    bad = type(spec)(kind="x", pool="gpu")
    world.step(inp.ZygoteLoaded("cpu", type(world.report)(handlers=(bad,))))
    assert world.finish is not None
    assert isinstance(world.finish.error, ConfigError)
    assert "gpu=N" in str(world.finish.error)


def test_a_limit_below_a_bare_child_is_refused() -> None:
    """A memory limit below what a bare child needs ends the start, with the figure."""
    world = World(pool(limits=PoolLimits(timeout_s=1, memory_bytes=21 * MIB)))
    world.step(inp.ZygoteLoaded("cpu", world.report))
    assert world.finish is not None
    assert "28MiB" in str(world.finish.error)


def test_a_pool_grows_while_jobs_wait_and_shrinks_without_killing() -> None:
    """A range is used as far as the host allows, and given back by retiring."""
    world = World(pool("cpu", 1, size_max=4, idle_shrink_s=5.0)).up()
    for _ in range(8):
        world.job()
    world.notify()

    def seen(idle_share: float) -> None:
        world.step(
            inp.HostSeen(
                due={"cpu": len(world.queue["cpu"])},
                host=HostReport(cpu_busy=1.0 - idle_share, available_bytes=2**34),
            )
        )

    seen(0.01)
    assert world.machine.pools["cpu"].size == 1
    seen(0.9)
    assert world.machine.pools["cpu"].size == 2
    seen(0.9)
    assert world.machine.pools["cpu"].size == 4
    assert sum(len(s.queue) for s in world.machine.slots) == 4
    for _ in range(2):
        for slot in range(4):
            if world.machine.slots[slot].queue:
                world.done(slot)
    for _ in range(20):
        world.wait(2.0)
        seen(0.9)
    assert world.machine.pools["cpu"].size == 1
    assert world.machine.pools["cpu"].children == 1
    assert not world.took(cmd.Kill)


def test_a_reload_replaces_children_when_they_are_idle() -> None:
    """After a reload idle children end at once, busy ones after their job."""
    world = World(pool("cpu", 2)).up()
    world.job()
    world.notify()
    world.took(cmd.Fork)
    world.took(cmd.StartZygote)
    world.step(inp.Reload(world.settings))
    assert [c.pool for c in world.took(cmd.StartZygote)] == ["cpu"]
    assert not world.took(cmd.Fork)
    world.step(inp.ZygoteLoaded("cpu", world.report, reloading=True))
    assert world.took(cmd.TakeOver)
    assert [c.slot for c in world.took(cmd.Fork)] == [1]
    world.done(0)
    assert [c.slot for c in world.took(cmd.Fork)] == [0]
    assert [s.state for s in world.settled] == [JobState.SUCCEEDED]


def test_a_reload_that_fails_changes_nothing() -> None:
    """A new application that does not load is an alarm; the old one works on."""
    world = World(pool("cpu", 1)).up()
    world.took(cmd.Fork)
    world.step(inp.Reload(world.settings))
    world.step(inp.ZygoteLost("cpu", "no module named nonsense", reloading=True))
    assert any(isinstance(e, Alarm) and "nonsense" in e.text for e in world.said)
    world.job()
    world.notify()
    world.done(0)
    assert [s.state for s in world.settled] == [JobState.SUCCEEDED]
    assert not world.took(cmd.Fork)


def test_a_reload_that_does_not_fit_keeps_the_old_code() -> None:
    """New code that contradicts the settings never takes over."""
    world = World(pool("cpu", 1)).up()
    world.step(inp.Reload(world.settings))
    spec = world.report.handlers[0]
    bad = type(world.report)(handlers=(type(spec)(kind="x", pool="gpu"),))
    world.step(inp.ZygoteLoaded("cpu", bad, reloading=True))
    assert world.took(cmd.DropZygote)
    assert not world.took(cmd.TakeOver)
    assert world.machine.registry is not None
    assert world.machine.registry.knows("cpu.work")


def test_a_stop_does_not_wait_for_a_child_that_is_being_forked() -> None:
    """A child that appears after the stop is killed at once."""
    world = World(pool("cpu", 1))
    world.deaf_forks = True
    world.up()
    world.step(inp.Stop("SIGQUIT"))
    world.step(inp.ChildForked(0))
    assert world.took(cmd.Kill)
    world.died(0, signal=signal.SIGKILL)
    assert world.finish is not None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, None),
        ({"store": "sqlite:////other.db"}, "store changed"),
        ({"pools": (pool("gpu"),)}, "pools changed"),
        ({"pools": (pool("cpu", 5),)}, "beyond the 2 slots"),
        ({"pools": (pool("cpu", 2, recycle_jobs=1),)}, "fresh and reused"),
        ({"pools": (pool("cpu", 1),)}, None),
    ],
)
def test_a_reload_may_change_only_some_settings(
    changed: dict[str, object], words: str | None
) -> None:
    """Limits, sizes within the slots and code may change; the rest needs a restart."""
    old = World(pool("cpu", 2)).settings
    problem = reload_problem(old, msgspec.structs.replace(old, **changed))
    assert (problem is None) == (words is None)
    assert words is None or words in (problem or "")


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({}, ()),
        ({"pools": (pool("cpu", 1),), "traces_sample": 0.5}, ()),
        ({"alerts": AlertSettings()}, ("[alerts]",)),
        (
            {
                "traces_otlp": "https://tempo.example.com",
                "metrics_listen": Address("::1", 9464),
            },
            ("[metrics] listen", "[traces] otlp"),
        ),
        (
            {"sentry": SentrySettings(dsn="https://k@sentry.example.com/1")},
            ("[sentry]",),
        ),
    ],
)
def test_what_no_reload_takes_is_named(
    changed: dict[str, object], names: tuple[str, ...]
) -> None:
    """Whoever alerts, or sends spans, goes on as it began."""
    first = World(pool("cpu", 2)).settings
    assert await_restart(first, msgspec.structs.replace(first, **changed)) == names


def test_a_zygote_that_is_killed_during_the_start_is_started_again() -> None:
    """That says nothing about the application; but it is not tried forever."""
    world = World()
    world.took(cmd.StartZygote)
    for _ in range(KILLED_MAX):
        world.step(inp.ZygoteLost("cpu", "it was killed", killed=True))
        assert world.finish is None
        world.wait(RETRY_LAST_S)
        assert len(world.took(cmd.StartZygote)) == 1
    world.step(inp.ZygoteLost("cpu", "it was killed", killed=True))
    assert world.finish is not None
    assert isinstance(world.finish.error, AppError)
