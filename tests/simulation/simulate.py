"""Runs scenarios: one, many, smaller ones; and reports the results."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import NamedTuple

import msgspec

from simulation.draw import draw
from simulation.long import draw_long, is_long
from simulation.plan import Plan
from simulation.rare import notable
from simulation.world import World
from support.store.history import History
from support.store.invariants import Violation, violations


class Result(NamedTuple):
    """The result of one scenario."""

    plan: Plan
    history: History
    found: list[Violation]
    sometimes: Counter[str]
    simulated_s: float
    events: int
    digest: str
    """Of everything that happened: equal in every run of a scenario."""


def run(plan: Plan) -> Result:
    """Run a scenario."""
    world = World(plan)
    history = world.run()
    log = msgspec.msgpack.encode((history.records, history.jobs))
    return Result(
        plan,
        history,
        violations(history),
        world.sometimes + notable(history),
        world.kernel.now_s,
        world.kernel.events,
        hashlib.sha256(log).hexdigest(),
    )


def run_seed(seed: int) -> Result:
    """Run the scenario of a seed."""
    return run(draw_long(seed) if is_long(seed) else draw(seed))
