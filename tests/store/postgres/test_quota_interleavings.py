"""Two sessions at the same buckets and lanes, interleaved at every statement.

The gate draws some orders. `JOBPOOL_TEST_INTERLEAVINGS=600` draws for so many seconds:
all orders in which each session is interrupted once, over all pairs of operations, and
then random ones. `JOBPOOL_TEST_SEED` repeats what was drawn.
"""

import functools
import os
import random
import time
from contextlib import closing

import pytest

from jobpool.core.rules.quotas.shares import PoolRule
from support.postgres.interleaving import (
    Actor,
    at_random,
    in_turns,
    interleave,
    stops,
)
from support.postgres.quota_world import CHANGES, OPERATIONS, PAIRS, World
from support.seeds import seed

FULL_S = float(os.environ.get("JOBPOOL_TEST_INTERLEAVINGS", "0"))
SEED = seed("JOBPOOL_TEST_SEED")
GATE_ORDERS = 15
"""Of each world."""
CLAIMS, OFTEN = ["claim", "claim_one", "settle_and_claim"], 0.6
"""What most of it is about is in so many of the random pairs."""
STEPS = 40
"""An operation has about so many statements; one that has fewer is not interrupted."""


@pytest.fixture(scope="module", params=["plain", "fair"])
def world(request):
    """Return the world; in a fair one claims of a pool take turns before all else."""
    pools = [PoolRule(name=name, fair="tenant") for name in ("cpu", "io")]
    with stops(), closing(World(pools if request.param == "fair" else ())) as world:
        yield world


def try_order(world, pair, choose, *, recounts, to_the_end):
    """Run one order of two operations; return what is wrong, and what happened."""
    world.restore(recounts=recounts)
    actors = [
        Actor(place, functools.partial(OPERATIONS[name], world, side), side.pids())
        for place, (name, side) in enumerate(zip(pair, world.sides, strict=True))
    ]
    wrong = []
    trace = interleave(
        actors, choose, world.monitor, lambda: wrong.extend(world.caps_passed())
    )
    wrong += [f"{pair[one.name]}: {one.error!r}" for one in actors if one.error]
    wrong += [f"{pair[one.name]}: a deadlock" for one in actors if one.has_deadlocked]
    has_changed = not CHANGES.isdisjoint(pair)
    return wrong + world.judge(has_changed=has_changed, to_the_end=to_the_end), trace


def orders(rng):
    """Yield pairs with an order: in turn each with one interruption, and any at all."""
    once = [
        (pair, steps, first)
        for pair in PAIRS
        for steps in range(STEPS)
        for first in (0, 1)
    ]
    rng.shuffle(once)
    while True:
        if FULL_S and once:
            pair, steps, first = once.pop()
            order = in_turns(first, steps, STEPS * 9, STEPS * 9)
            yield pair, f"{first} for {steps}", order
        one = rng.choice(CLAIMS if rng.random() < OFTEN else [*OPERATIONS])
        pair = rng.sample([one, rng.choice([*OPERATIONS])], 2)
        seed = rng.getrandbits(32)
        yield tuple(pair), f"seed {seed}", at_random(random.Random(seed))


@pytest.mark.timeout(FULL_S + 300)
def test_in_every_order_caps_hold_and_nobody_is_forgotten(world):
    """No cap is passed, no permit left behind, no lane stays blocked, no deadlock."""
    rng = random.Random(SEED)
    ends_s = time.monotonic() + FULL_S
    problems, tried = {}, 0
    for pair, order, choose in orders(rng):
        if tried >= GATE_ORDERS and time.monotonic() >= ends_s:
            break
        tried += 1
        to_the_end = rng.random() < 0.15
        recounts = rng.random() < 0.2
        wrong, trace = try_order(
            world, pair, choose, recounts=recounts, to_the_end=to_the_end
        )
        if wrong:
            known = problems.setdefault((pair, wrong[0]), [])
            known.append((order, wrong, trace))
    assert not problems, told(problems, tried)


def told(problems, tried):
    """Say what was wrong, with the shortest order for each."""
    lines = [f"seed {SEED}, {tried} orders"]
    for (pair, _), found in sorted(problems.items()):
        order, wrong, trace = min(found, key=lambda one: len(one[2]))
        steps = " ".join(f"{place}:{at}" for place, at in trace)
        lines.append(f"{pair} x{len(found)} {order}: {wrong}\n    {steps}")
    return "\n".join(lines)
