"""Host admission: jobs wait for memory in the core, and none waits forever."""

from __future__ import annotations

import msgspec
import pytest

from jobpool.core.config.settings import KindSettings, MemoryAdmission, PoolSettings
from jobpool.core.events.pools import MemoryAwaited
from jobpool.core.jobs.job import JobState, PastAttempt
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.limits import Limits, PoolLimits
from jobpool.core.rules.policy import Policy, Rerun
from jobpool.core.rules.run_report import HostReport, MemoryReport
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.admission.host_memory import (
    PRESSURE_FROM,
    reserve_bytes,
)
from support.machine.world import MIB, World, pool

BUDGET = 1000 * MIB


def world_of(
    *pools: PoolSettings,
    budget_bytes: int | None = BUDGET,
    admission: MemoryAdmission = MemoryAdmission.OBSERVED,
    policy: Policy | None = None,
) -> World:
    """Return a running world with a memory budget; pools' jobs take 512 MiB."""
    world = World(*pools, policy=policy).up()
    settings = msgspec.structs.replace(
        world.settings, memory_budget_bytes=budget_bytes, memory_admission=admission
    )
    world.machine._memory.set(settings)
    return world


def running(world: World) -> int:
    """Return how many attempts run."""
    return sum(p.busy for p in world.machine.pools.values())


def busy_slot(world: World) -> int:
    """Return the number of a slot that runs an attempt."""
    return next(slot.number for slot in world.machine.slots if slot.queue)


def test_a_job_over_the_memory_budget_waits_until_enough_have_ended() -> None:
    """One job of 512 MiB fits into 1,000 MiB, and the next follows it at once."""
    world = world_of(pool("cpu", 4))
    for _ in range(3):
        world.job()
    world.notify()
    assert running(world) == 1
    world.done(0)
    assert running(world) == 1
    world.done(busy_slot(world))
    world.done(busy_slot(world))
    assert [s.state for s in world.settled] == [JobState.SUCCEEDED] * 3


def test_without_a_memory_budget_no_job_waits() -> None:
    """As many run as there are slots."""
    world = world_of(pool("cpu", 4), budget_bytes=None)
    for _ in range(4):
        world.job()
    world.notify()
    assert running(world) == 4


def test_another_pool_goes_on_and_gives_its_memory_back() -> None:
    """An end in one pool lets the first job of another in."""
    world = world_of(pool("cpu", 1), pool("io", 2))
    world.job("cpu", memory_bytes=900 * MIB)
    world.notify()
    world.job("io", memory_bytes=600 * MIB)
    world.notify()
    assert running(world) == 1
    world.done(0)
    assert [slot.pool for slot in world.machine.slots if slot.queue] == ["io"]


def test_a_job_larger_than_the_budget_runs_alone() -> None:
    """It is not refused, and nothing runs beside it."""
    world = world_of(pool("cpu", 2))
    world.job(memory_bytes=5000 * MIB)
    world.job(memory_bytes=64 * MIB)
    world.notify()
    assert running(world) == 1
    world.done(0)
    assert running(world) == 1


def test_a_stream_of_small_jobs_does_not_keep_a_large_one_out() -> None:
    """After ten seconds its share is kept free for it."""
    world = world_of(pool("cpu", 1), pool("io", 4))
    for _ in range(2):
        world.job("io", memory_bytes=400 * MIB)
    world.notify()
    large = world.job("cpu", memory_bytes=900 * MIB)
    world.notify()
    for _ in range(40):
        world.job("io", memory_bytes=400 * MIB)
    for _ in range(30):
        world.wait(0.5)
        world.notify()
        world.done(busy_slot(world))
        if any(frame.id == large.id for sent in world.sent.values() for frame in sent):
            return
    raise AssertionError("the large job has never begun")


def test_a_long_wait_for_memory_is_reported_and_ends_in_a_hand_back() -> None:
    """Another host may have room; jobs behind it in line go back at once."""
    world = world_of(pool("cpu", 3))
    for _ in range(3):
        world.job()
    world.notify()
    world.wait(2.0)
    (said,) = [e for e in world.said if isinstance(e, MemoryAwaited)]
    assert (said.memory_bytes, said.used_bytes) == (512 * MIB, 512 * MIB)
    assert len(world.settled) == 1
    world.wait(60.0)
    assert {s.state for s in world.settled} == {JobState.RUNNABLE}
    assert running(world) == 1


def test_a_reload_changes_the_memory_budget() -> None:
    """Waiting jobs may begin at the next check."""
    world = world_of(pool("cpu", 2))
    for _ in range(2):
        world.job()
    world.notify()
    assert running(world) == 1
    settings = msgspec.structs.replace(world.settings, memory_budget_bytes=None)
    world.step(inp.Reload(settings))
    world.wait(2.0)
    world.notify()
    assert running(world) == 2


def seen(world: World, attempts: int, peak_bytes: int = 80 * MIB) -> None:
    """Let attempts end that have used so much, one after another."""
    for _ in range(attempts):
        world.job()
        world.notify()
        world.done(busy_slot(world), peak_rss_bytes=peak_bytes)
    world.settled.clear()


def fill(world: World, jobs: int = 30, **fields: object) -> int:
    """Enqueue jobs and return how many run at once."""
    for _ in range(jobs):
        world.job(**fields)
    world.notify()
    return running(world)


@pytest.mark.parametrize(("attempts", "at_once"), [(96, 1), (128, 9)])
def test_a_kind_that_is_known_counts_with_what_it_was_seen_to_use(
    attempts: int, at_once: int
) -> None:
    """80 MiB and a margin fit nine times into 1,000 MiB, the limit of 512 MiB once."""
    world = world_of(pool("cpu", 30))
    seen(world, attempts)
    assert fill(world) == at_once


def test_the_limit_counts_where_the_settings_say_so() -> None:
    """However little its kind was seen to use."""
    world = world_of(pool("cpu", 30), admission=MemoryAdmission.LIMITS)
    seen(world, 128)
    assert fill(world) == 1


def test_nothing_counts_with_more_than_its_limit() -> None:
    """A lower limit than its kind has used is kept by force."""
    world = world_of(pool("cpu", 30))
    seen(world, 128, peak_bytes=400 * MIB)
    assert fill(world, memory_bytes=100 * MIB) == 10


def test_a_job_that_has_run_out_of_memory_counts_with_its_limit() -> None:
    """It is not what its kind usually is."""
    world = world_of(pool("cpu", 30))
    seen(world, 128)
    past = PastAttempt(Outcome.OUT_OF_MEMORY, None, 0)
    assert fill(world, attempt=2, history=(past,)) == 1


def test_what_the_store_knows_counts_from_the_start() -> None:
    """The higher of that and of what has ended here since."""
    world = world_of(pool("cpu", 30))
    known = {("cpu.work", "cpu"): 160 * MIB}
    world.step(inp.HostSeen(host=HostReport(), usual_of_kinds=known))
    seen(world, 128)
    assert fill(world) == 5


TOTAL = 8 * 1024 * MIB
KEPT = int(PRESSURE_FROM * reserve_bytes(TOTAL))


def spare(world: World, mib: int) -> None:
    """Let the host be seen with so much plainly to spare."""
    world.step(inp.HostMemorySeen(KEPT + mib * MIB, TOTAL))


@pytest.mark.parametrize(
    ("attempts", "spare_mib", "at_once"),
    [(9, 900, 1), (10, 900, 5), (10, 400, 2), (10, 1900, 6), (10, 0, 1)],
)
def test_the_first_of_a_kind_use_what_the_host_plainly_has_to_spare(
    attempts: int, spare_mib: int, at_once: int
) -> None:
    """Twice 80 MiB each, by ten attempts; never more than the budget of 1,000 MiB."""
    world = world_of(pool("cpu", 30))
    seen(world, attempts)
    spare(world, spare_mib)
    assert fill(world) == at_once


def test_jobs_that_wait_begin_once_the_host_has_memory_to_spare() -> None:
    """The look that says so is enough: nobody waits for an end."""
    world = world_of(pool("cpu", 30))
    seen(world, 10)
    assert fill(world) == 1
    spare(world, 900)
    assert running(world) >= 2


def test_what_may_not_run_again_does_not_begin_on_hope() -> None:
    """The host could not interrupt it."""
    world = world_of(pool("cpu", 30), policy=Policy(rerun=Rerun.NEVER))
    seen(world, 10)
    spare(world, 900)
    assert fill(world) == 1


def test_what_runs_may_still_take_what_the_host_has_to_spare() -> None:
    """All of it is kept for a running job of a kind of which nobody knows anything."""
    world = world_of(pool("cpu", 30), pool("io", 1))
    seen(world, 10)
    spare(world, 600)
    world.job("io", memory_bytes=512 * MIB)
    world.notify()
    assert fill(world) == 1


def reported(world: World, known: int | None = None) -> MemoryReport | None:
    """Return what the supervisor reports of its slots, in a minute."""
    world.now_s += 60.0
    usual = {} if known is None else {("cpu.work", "cpu"): known * MIB}
    world.step(inp.HostSeen(host=HostReport(), usual_of_kinds=usual))
    (command,) = world.took(cmd.Report)
    report: MemoryReport | None = command.report.memory
    return report


def test_slots_that_cannot_be_used_are_reported_with_the_kind_that_counts_most() -> (
    None
):
    """By its limit until it is known, then by what it has used."""
    world = world_of(pool("cpu", 9))
    fields = {"slots": 9, "budget_bytes": BUDGET, "kind": "cpu.work"}
    by_limit = MemoryReport(**fields, usable=1, bytes=512 * MIB, is_limit=True)
    assert reported(world) == by_limit
    assert reported(world, 160) == MemoryReport(**fields, usable=5, bytes=200 * MIB)
    assert reported(world, 80) is None


def test_what_a_job_may_be_given_is_reported() -> None:
    """Of each pool: its maximum, else where growth ends; and which kinds are fixed."""
    limits = PoolLimits(
        timeout_s=60, memory_bytes=100 * MIB, memory_growth_max_bytes=900 * MIB
    )
    own = msgspec.structs.replace(limits, memory_max_bytes=400 * MIB)
    fixed = KindSettings(limits=Limits(memory_bytes=200 * MIB))
    world = World(
        msgspec.structs.replace(pool("cpu", 1), limits=limits),
        msgspec.structs.replace(pool("io", 1), limits=own),
        kinds={"cpu.work": fixed, "io.work": KindSettings(max_attempts=2)},
    ).up()
    world.now_s += 60.0
    world.step(inp.HostSeen(host=HostReport()))
    (command,) = world.took(cmd.Report)
    said = command.report.pools
    assert said["cpu"].memory_max_bytes == 900 * MIB
    assert said["io"].memory_max_bytes == 400 * MIB
    assert command.report.fixed_memory == ("cpu.work",)
