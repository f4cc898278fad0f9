"""What slots count of themselves, and what a job costs beside many slots."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from jobpool.supervisor.machine.admission.memory import MemoryGate
from jobpool.supervisor.machine.state.slot import Slot, SlotState
from jobpool.supervisor.machine.state.usual_memory import UsualMemory
from support.machine.world import MIB, World, pool

BUDGET = 6000 * MIB


def busy(world: World) -> list[Slot]:
    """Return the slots that have a job."""
    return [slot for slot in world.machine.slots if slot.queue]


def used_bytes(world: World, gate: MemoryGate) -> int:
    """Return what runs needs, by a look at all of it."""
    return sum(max(map(gate._need_bytes, slot.queue)) for slot in busy(world))


def act(world: World, draw: random.Random) -> None:
    """Let something happen to a slot."""
    slots = busy(world)
    match draw.choice(["jobs", *["done"] * 6, "died", "recalled", "wait"]):
        case "jobs":
            for _ in range(draw.randint(1, 30)):
                world.job(draw.choice(["cpu", "io"]))
            world.notify()
        case "done" if slots:
            peak_bytes = draw.randint(50, 300) * MIB
            world.done(draw.choice(slots).number, peak_rss_bytes=peak_bytes)
        case "died" if slots:
            world.died(draw.choice(slots).number, signal=11)
        case "recalled" if slots:
            slot = draw.choice(slots)
            world.recalled(slot.number, list(slot.queue)[1:])
        case _:
            world.wait(draw.choice([0.001, 0.2]))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_counted_is_what_a_look_at_all_slots_would_find(seed: int) -> None:
    """Whatever happens to them: jobs sent, sent ahead, ended, recalled; deaths."""
    world = World(pool("cpu", 6, size_max=6), pool("io", 5)).up()
    gate = world.machine._memory
    gate.set(replace(world.settings, memory_budget_bytes=BUDGET))
    draw, most = random.Random(seed), 0
    for _ in range(400):
        act(world, draw)
        for one in world.machine.pools.values():
            states = [slot.state for slot in one.slots]
            assert one.busy == sum(1 for slot in one.slots if slot.queue)
            assert one.children == len(states) - states.count(SlotState.EMPTY)
        assert gate._look() == used_bytes(world, gate)
        most = max(most, *(len(slot.queue) for slot in world.machine.slots))
    assert most > 1, "no job was ever sent ahead"


def test_what_a_job_costs_the_memory_gate_does_not_grow_with_the_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks for what a kind usually uses, so often for each job."""
    asked = 0

    def counted(usual: UsualMemory, place: tuple[str, str]) -> int | None:
        nonlocal asked
        asked += 1
        return found(usual, place)

    found = UsualMemory.reserved_bytes
    monkeypatch.setattr(UsualMemory, "reserved_bytes", counted)

    def cost(slots: int) -> float:
        nonlocal asked
        world = World(pool("cpu", slots)).up()
        budget = slots * 600 * MIB
        world.machine._memory.set(replace(world.settings, memory_budget_bytes=budget))
        asked = 0
        for _ in range(3):
            for _ in range(slots):
                world.job()
            world.notify()
            assert len(busy(world)) == slots
            for slot in range(slots):
                world.done(slot, duration_s=0.2)
        return asked / (3 * slots)

    assert cost(64) < 2 * cost(4)
