"""The guard: honest jobs that outgrow their host are interrupted, and all get done."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from jobpool.core.events.pools import HostMemoryShort
from jobpool.core.jobs.job import JobState, Lease, PastAttempt, Settlement
from jobpool.core.jobs.outcome import Charge, Outcome
from jobpool.core.rules.policy import HOST_MEMORY, Policy, Rerun
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.admission.host_memory import is_short, reserve_bytes
from jobpool.supervisor.machine.state.slot import SlotState
from support.machine.world import MIB, World, pool

GIB = 2**30
TOTAL = 8 * GIB
RESERVE = reserve_bytes(TOTAL)
ENOUGH, LITTLE, NONE = 2 * RESERVE, RESERVE - 1, RESERVE // 2 - 1


def world_of(size: int = 4, *, jobs: int = 0, policy: Policy | None = None) -> World:
    """Return a running world without a memory budget, and start so many jobs."""
    world = World(pool("cpu", size), policy=policy).up()
    for _ in range(jobs):
        begin(world)
    return world


def begin(world: World) -> Lease:
    """Put a job in the queue and let it begin later than the others."""
    world.now_s += 0.01
    lease: Lease = world.job()
    world.notify()
    return lease


def see(world: World, available_bytes: int, pressure: float | None = None) -> list[int]:
    """Let the host be seen; return the slots whose children are killed now."""
    world.step(inp.HostMemorySeen(available_bytes, TOTAL, pressure))
    return [command.slot for command in world.took(cmd.Kill)]


def running(world: World) -> list[int]:
    """Return the jobs that run, in the order of their slots."""
    return [slot.queue[0].lease.id for slot in world.machine.slots if slot.queue]


@pytest.mark.parametrize(
    ("available", "pressure", "was_short", "expected"),
    [
        (RESERVE, None, False, False),
        (RESERVE - 1, None, False, True),
        (RESERVE, None, True, True),
        (2 * RESERVE, None, True, False),
        (2 * RESERVE, 10.0, False, False),
        (2 * RESERVE, 10.1, False, True),
        (5 * RESERVE, 90.0, False, False),
    ],
)
def test_a_host_is_short_below_its_reserve_or_under_pressure(
    available: int, pressure: float | None, was_short: bool, expected: bool
) -> None:
    """Pressure where much is left is of a program at a limit of its own."""
    seen = inp.HostMemorySeen(available, TOTAL, pressure)
    assert is_short(seen, was_short=was_short) is expected


def test_nothing_begins_beside_others_while_the_host_is_short() -> None:
    """It begins once there is enough again; the log has said why."""
    world = world_of(jobs=1)
    assert not see(world, LITTLE)
    second = begin(world)
    assert second.id not in running(world)
    see(world, ENOUGH)
    world.notify()
    assert second.id in running(world)
    assert sum(isinstance(event, HostMemoryShort) for event in world.said) == 1


def test_nothing_is_sent_ahead_while_the_host_is_short() -> None:
    """It would wait behind what may have to go."""
    for available, ahead in ((ENOUGH, True), (LITTLE, False)):
        world = world_of(1).fast()
        world.job()
        world.notify()
        see(world, available)
        world.job()
        world.notify()
        assert (len(world.machine.slots[0].queue) > 1) is ahead


def test_one_begins_where_nothing_runs_however_short_the_host_is() -> None:
    """A host that is always short of memory still gets on."""
    world = world_of(jobs=1)
    see(world, NONE)
    world.job()
    world.job()
    world.done(0)
    world.notify()
    assert len(running(world)) == 1
    assert not see(world, NONE)


def test_the_attempt_that_began_last_goes_first_and_the_oldest_never() -> None:
    """One at a time, each when the memory of the one before has come back."""
    world = world_of(jobs=3)
    assert see(world, NONE) == [2]
    assert see(world, NONE) == []  # its memory is still to come
    world.died(2, signal=9)
    assert see(world, NONE) == [1]
    world.died(1, signal=9)
    assert see(world, NONE) == []
    assert len(running(world)) == 1
    assert [one.outcome for one in world.settled] == [Outcome.INTERRUPTED] * 2
    for settlement in world.settled:
        assert settlement.state is JobState.PENDING
        assert settlement.charge == Charge(end_unknown=True)
        assert settlement.delay_ms == 5000
        assert "memory left" in (settlement.evidence.reason or "")


def test_one_that_does_not_die_does_not_protect_the_others() -> None:
    """After a second the next one goes."""
    world = world_of(jobs=3)
    assert see(world, NONE) == [2]
    world.wait(1.1)
    world.took(cmd.Kill)
    assert see(world, NONE) == [1]


def test_an_attempt_that_may_not_be_rerun_is_never_interrupted() -> None:
    """Nor is it killed for what others use."""
    world = world_of(jobs=3, policy=Policy(rerun=Rerun.NEVER))
    assert see(world, NONE) == []
    assert len(running(world)) == 3


@pytest.mark.parametrize(("hours", "is_free"), [(23.9, True), (24.1, False)])
def test_such_interruptions_are_free_for_a_day(hours: float, is_free: bool) -> None:
    """Then they are counted as any other; they wait longer each time, up to 5 min."""
    day_ms = 100 * 86_400_000
    past = [
        PastAttempt(Outcome.INTERRUPTED, HOST_MEMORY, day_ms - round(at * 3_600_000))
        for at in (50.0, hours, *[1.0] * 9)
    ]
    past.insert(1, PastAttempt(Outcome.FAILED, None, past[0].finished_at_ms + 1))
    world = world_of(jobs=1)
    world.job(attempt=13, history=tuple(past), leased_at_ms=day_ms)
    world.now_s += 0.01
    world.notify()
    assert see(world, NONE) == [1]
    world.died(1, signal=9)
    (settlement,) = world.settled
    assert settlement.charge.interruption is not is_free
    assert not settlement.charge.failure
    assert settlement.delay_ms == 300_000
    assert settlement.rule == HOST_MEMORY


@dataclass
class Host:
    """A host whose jobs grow past what anyone knew of them."""

    world: World
    random: random.Random
    used: dict[int, int] = field(default_factory=dict)
    """By job, of the attempt that runs."""
    waiting: list[tuple[float, Lease]] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    settled: list[Settlement] = field(default_factory=list)

    def available(self) -> int:
        """Return what is left."""
        return TOTAL - GIB - sum(self.used.values())

    def turn(self) -> None:
        """Let 10 ms pass: everything grows, some end, the guard looks."""
        world = self.world
        world.now_s += 0.01
        for slot in world.machine.slots:
            if not slot.queue:
                continue
            job = slot.queue[0].lease.id
            if slot.state is SlotState.KILLED:
                self.used.pop(job, None)
                world.died(slot.number, signal=9)
                continue
            self.used[job] = self.used.get(job, 0) + self.random.randrange(4 * MIB)
            if self.used[job] > 400 * MIB:
                world.done(slot.number, peak_rss_bytes=self.used.pop(job))
                self.done.add(job)
        assert self.available() > 0, "the kernel would have killed"
        see(world, self.available())
        self._retry()
        world.wait(0.0)
        world.notify()

    def _retry(self) -> None:
        """Give interrupted jobs back to the queue once their delay is over."""
        world = self.world
        for one in world.settled:
            self.settled.append(one)
            if one.state is JobState.PENDING:
                due_s = world.now_s + one.delay_ms / 1000
                self.waiting.append((due_s, world.leases[one.id]))
            elif one.outcome is None:
                world.queue["cpu"].append(world.leases[one.id])
        world.settled.clear()
        for due in [due for due in self.waiting if due[0] <= world.now_s]:
            self.waiting.remove(due)
            world.queue["cpu"].append(due[1])


@pytest.mark.parametrize("seed", range(3))
def test_honest_jobs_under_pressure_are_all_done_and_nobody_is_charged(
    seed: int,
) -> None:
    """40 jobs of 400 MiB on 7 GiB: the kernel has nothing to kill."""
    world = World(pool("cpu", 40)).up()
    world.takes_back = False
    host = Host(world, random.Random(seed))
    for _ in range(40):
        world.job()
    world.notify()
    for _ in range(20_000):
        if len(host.done) == 40:
            break
        host.turn()
    assert len(host.done) == 40
    interrupted = [s for s in host.settled if s.outcome is Outcome.INTERRUPTED]
    assert interrupted, "there was no pressure"
    for one in host.settled:
        charge = one.charge
        assert charge in {Charge(), Charge(end_unknown=True)}
