"""The gates in order: which refuses, why, and what happens to the job."""

from __future__ import annotations

import msgspec

from jobpool.core.jobs.job import Lease, Settlement
from jobpool.core.rules.circuit_breaker import BreakerState, Saved
from jobpool.core.rules.suspects import PROBATION_S
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.admission.circuit_breakers import CircuitBreakers
from jobpool.supervisor.machine.admission.gate import Gate
from jobpool.supervisor.machine.admission.host_memory import HostMemoryGuard
from jobpool.supervisor.machine.admission.host_quotas import HostQuotas
from jobpool.supervisor.machine.admission.memory import REASON as MEMORY
from jobpool.supervisor.machine.admission.memory import MemoryGate
from jobpool.supervisor.machine.admission.probation import ALONE, ITS_TURN, Probation
from jobpool.supervisor.machine.state.slot import Assigned
from jobpool.supervisor.machine.state.step import Step
from support.machine.world import MIB, World, pool


class OneAtATime(Gate):
    """A concurrency limit of one for a kind: what flow control will be."""

    sorts_out = True

    def __init__(self, step: Step, kind: str) -> None:
        self._step = step
        self._kind = kind
        self._runs: int | None = None
        self._was_refused = False
        step.on_settle.append(self._settled)

    def admit(self, job: Assigned) -> str | None:
        """Keep the one place for the first job that asks."""
        if job.lease.kind != self._kind or self._runs == job.lease.token:
            return None
        if self._runs is None:
            self._runs = job.lease.token
            return None
        self._was_refused = True
        return f"one {self._kind} runs already"

    @property
    def needs_ends(self) -> bool:
        """The place is free again when its owner ends."""
        return self._runs is not None

    def held(self) -> frozenset[str]:
        """Request none while one runs."""
        if self._runs is None:
            return frozenset()
        self._was_refused = True
        return frozenset({self._kind})

    def _settled(self, lease: Lease, _settlement: Settlement) -> None:
        if lease.token == self._runs:
            self._runs = None
            self._step.recheck = self._step.recheck or self._was_refused


def gates(world: World) -> tuple[Gate, ...]:
    """Return the gates of a world's supervisor."""
    return tuple(world.machine._dispatcher._gates)


def waiting(world: World, pool_name: str = "cpu") -> Assigned:
    """Return the first in a pool's line."""
    return world.machine.pools[pool_name].backlog[0]


def waiting_lease(world: World, pool_name: str = "cpu") -> Lease:
    """Return the first lease of a pool that the store has not granted yet."""
    return world.queue[pool_name][0]


def running(world: World) -> set[int]:
    """Return the ids of the jobs that run."""
    return {slot.queue[0].lease.id for slot in world.machine.slots if slot.queue}


def refusals(world: World, job: Assigned) -> list[str | None]:
    """Return each gate's answer for a job."""
    return [gate.admit(job) for gate in gates(world)]


def test_gates_are_asked_in_a_fixed_order() -> None:
    """Jobs that go back are sorted out first.

    Memory only gets what all others admit.
    """
    world = World().up()
    assert [type(gate) for gate in gates(world)] == [
        CircuitBreakers,
        HostQuotas,
        Probation,
        HostMemoryGuard,
        MemoryGate,
    ]
    sorts_out = [gate.sorts_out for gate in gates(world)]
    assert sorts_out == [True, True, False, False, False]


def test_a_job_refused_for_memory_is_told_so() -> None:
    """No other gate refuses it."""
    world = World(pool("cpu", 2)).up()
    world.machine._memory.budget_bytes = 600 * MIB
    world.job()
    world.job()
    world.notify()
    assert refusals(world, waiting(world)) == [None, None, None, None, MEMORY]


def test_beside_a_suspect_nothing_begins_and_the_suspect_waits_its_turn() -> None:
    """Each is told its own reason."""
    world = World(pool("cpu", 2), pool("io", 2)).up()
    world.wait(PROBATION_S + 1)
    world.job("io")
    world.notify()
    suspect = world.job(suspect=True)
    other = msgspec.structs.replace(waiting_lease(world), suspect=False)
    world.notify()
    assert waiting(world).lease.id == suspect.id
    assert refusals(world, waiting(world)) == [None, None, ITS_TURN, None, None]
    beside = msgspec.structs.replace(waiting(world), lease=other)
    assert refusals(world, beside)[2] == ALONE
    assert running(world) == {1}


def test_a_kind_held_back_gets_the_reason_that_show_prints() -> None:
    """It names the kind and the breaker's state, and requests no more."""
    world = World(pool("cpu", 2)).up()
    world.job()
    world.job()
    world.notify()
    job = world.machine.slots[0].queue[0]
    saved = Saved(
        kind="cpu.work", state=BreakerState.OPEN, crashes=20, last_job=9, wait_s=300.0
    )
    world.step(inp.BreakersSeen((saved,), 0))
    assert refusals(world, job)[0] == "kind cpu.work is open"
    assert gates(world)[0].held() == {"cpu.work"}


def test_a_new_gate_needs_no_other_change() -> None:
    """A limit of one.

    The rest goes back once, none is requested, and each has its turn.

    Whatever the gate keeps for a job is free again with the job's settlement.
    """
    world = World(pool("cpu", 3), pool("io", 1)).up()
    world.takes_back = True
    dispatcher = world.machine._dispatcher
    cap = OneAtATime(world.machine._step, "cpu.work")
    fast_path = world.machine._fast_path
    all_gates = (cap, *gates(world))
    dispatcher._gates = dispatcher._prefetch._gates = fast_path._gates = all_gates
    ids = [world.job().id for _ in range(3)]
    world.notify()
    assert len(running(world)) == 1
    assert sorted(s.id for s in world.settled) == sorted(set(ids) - running(world))
    assert world.took(cmd.Lease)[-1].held == {"cpu.work"}  # type: ignore[attr-defined]
    beside = world.job("io").id
    world.notify()
    assert beside in running(world)
    seen: set[int] = set()
    for _ in ids:
        (one,) = running(world) - {beside}
        seen.add(one)
        slot = next(s for s in world.machine.slots if s.queue and s.pool == "cpu")
        world.done(slot.number)
    assert seen == set(ids)
