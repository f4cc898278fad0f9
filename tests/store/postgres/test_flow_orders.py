"""Two sessions at one flow, interleaved at every statement: retries beside all else.

The gate draws some orders. `JOBPOOL_TEST_INTERLEAVINGS=600` draws for so many seconds:
all orders in which each session is interrupted once, over all pairs of operations, and
then random ones. `JOBPOOL_TEST_SEED` repeats what was drawn.
"""

import functools
import itertools
import os
import random
import time
from contextlib import closing

import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.flow import Hook, NewStep, When
from jobpool.core.jobs.job import FINISHED
from jobpool.errors import UsageError
from jobpool.store.opening import open_store
from jobpool.store.records.jobs import Receipt
from support.postgres.interleaving import Actor, at_random, in_turns, interleave, stops
from support.postgres.server import query_of, server
from support.seeds import seed
from support.store.flows import died, jobs_of, step, store_flow
from support.store.storing import KINDS, ManualClock, begin_run, succeeded

FULL_S = float(os.environ.get("JOBPOOL_TEST_INTERLEAVINGS", "0"))
SEED = seed("JOBPOOL_TEST_SEED")
GATE_ORDERS = 16
ALWAYS = [
    *(("ended", ("retry", "prune"), steps, 1) for steps in range(7, 10)),
    ("ended", ("retry", "retry"), 2, 0),
]
"""Situation, pair, for so many statements one goes first, and who."""
STEPS = 26
"""An operation has about so many statements; one that has fewer is not interrupted."""
ROUNDS = 30
CHARGE, SHIP, REFUND, CLEAN = range(4)
FLOW = (
    step(CHARGE),
    step(SHIP, CHARGE),
    step(REFUND, CHARGE, when=When.FAILED),
    NewStep(number=CLEAN, name="clean", hook=Hook.FINISH),
)
MEMBERS = {CHARGE: 2, SHIP: 1, REFUND: 1, CLEAN: 1}
AT_ONCE = Retention(succeeded_s=0.0, dead_s=0.0, canceled_s=0.0)
LEFT = """
SELECT
  (SELECT count(*) FROM steps), (SELECT count(*) FROM edges),
  (SELECT count(*) FROM jobs WHERE step IS NOT NULL),
  (SELECT count(*) FROM jobs WHERE step NOT IN (SELECT id FROM steps)),
  (SELECT count(*) FROM steps WHERE flow NOT IN (SELECT id FROM flows))
"""


class World:
    """One flow after another, and two stores at it."""

    def __init__(self):
        self.clock = ManualClock(round(time.time() * 1000) - 10**9)
        self.url = server().store_url()
        self.monitor = server().connect()
        self.monitor.execute(f"SET search_path = {query_of(self.url)['schema']}")
        self.stores = [open_store(self.url, clock=self.clock) for _ in range(2)]
        for place, store in enumerate(self.stores):
            begin_run(store, f"run-{place}")
            store.fold()

    def close(self):
        for one in (*self.stores, self.monitor):
            one.close()
        server().drop(self.url)

    def pids(self, place):
        return [self.stores[place]._server._session.connection.info.backend_pid]

    def begin(self, situation):
        """Store a flow, one of whose charges dies, and bring it into a situation."""
        for place, store in enumerate(self.stores):
            store.renew(f"run-{place}", 60.0, anew=True)
        self.wrong, self.good, self.running = [], set(), []
        self.generation, self.stands = 1, situation != "ended"
        self.flow = store_flow(self.stores[0], *FLOW, members=MEMBERS)
        self.ids = [
            [one.id for one in jobs_of(self.stores[0], self.flow, number)]
            for number in MEMBERS
        ]
        self.claim(0)
        self.settle(0, bad={self.running[0].id})
        if situation == "noted":
            return
        self.claim(0)
        self.settle(0)
        self.claim(0)
        hook = {one.id for one in self.running}
        if situation != "its hook runs":
            self.settle(0, bad=hook)
            self.stores[0].fold()
        if situation == "retried":
            self.retry(0)
            self.claim(0)
        self.clock.advance(1)

    def claim(self, place):
        """Begin what may; nothing that has succeeded begins again."""
        leases = self.stores[place].lease(f"run-{place}", {"cpu": 9}, KINDS).leases
        for one in leases:
            if one.id in self.good:
                self.wrong.append(f"job {one.id} has succeeded, and begins again")
            if not one.payload:
                self.wrong.append(f"job {one.id} begins without its arguments")
        self.running += leases

    def settle(self, place, bad=()):
        """End what runs; nobody's end is lost."""
        for one in [*self.running]:
            end = died(one) if one.id in bad else succeeded(one)
            (receipt,) = self.stores[place].settle([end])
            if receipt is Receipt.LATER:
                continue  # Whoever retries its flow holds it: it ends the next time.
            if receipt is not Receipt.ACCEPTED:
                self.wrong.append(f"the end of {one.id} is {receipt}")
            if one.id not in bad:
                self.good.add(one.id)
            self.running = [other for other in self.running if other is not one]

    def retry(self, place, jobs=()):
        """Retry it, or some jobs; refused while what comes after them runs."""
        try:
            done = self.stores[place].retry_flow(self.flow, jobs)
        except UsageError as exc:
            if "nothing was changed" not in str(exc):
                raise
        else:
            self.generation += done
            self.stands |= done

    def revive(self, place):
        """Let the hook run again that has died."""
        if self.stores[place].revive(self.ids[CLEAN], FINISHED):
            self.stands = True

    def judge(self):
        """Run everything to its end, and return what is wrong."""
        store = self.stores[0]
        if self.stands and store.flow(self.flow) is None:
            self.wrong.append("it was deleted, and had not ended or went on")
        for _ in range(ROUNDS):
            self.clock.advance(1)
            store.resume_flow(self.flow)
            self.settle(0)
            self.claim(0)
            if not self.running and not store.fold().is_short:
                break
        if (found := store.flow(self.flow)) is not None:
            self.wrong += self._wrong_flow(store, found)
        self.clock.advance(1)
        for _ in range(ROUNDS):
            if not store.prune(AT_ONCE):
                break
        self.clock.advance(1)
        (left,) = self.monitor.execute(LEFT).fetchall()
        if any(left):
            self.wrong.append(f"steps, edges, members, strays of either left: {left}")
            self.monitor.execute(
                "TRUNCATE flows, steps, edges, flow_notes, jobs CASCADE"
            )
        return self.wrong

    def _wrong_flow(self, store, found):
        """Yield what is wrong with a flow that was to come to its end."""
        if found.row.finished_at_ms is None:
            yield f"it never ends: {[(s.name, s.state, s.jobs) for s in found.steps]}"
        if found.row.generation != self.generation:
            yield f"generation {found.row.generation}, expected {self.generation}"
        for one in found.steps:
            rows = jobs_of(store, self.flow, one.number)
            newest = [row for row in rows if row.replaced_by is None]
            if len(newest) != MEMBERS[one.number]:
                yield f"step {one.number} has {len(newest)} members: {rows}"
            if one.hook and not all(row.attempt for row in newest):
                yield f"a hook never began: {newest}"


OPERATIONS = {
    "retry": lambda world, place, _: world.retry(place),
    "retry_job": lambda world, place, _: world.retry(place, [world.ids[CHARGE][0]]),
    "claim": lambda world, place, _: world.claim(place),
    "settle": lambda world, place, _: world.settle(place),
    "fold": lambda world, place, _: world.stores[place].fold(),
    "fold_little": lambda world, place, _: world.stores[place].fold(1),
    "cancel": lambda world, place, _: world.stores[place].cancel_flow(world.flow),
    "pause": lambda world, place, _: world.stores[place].pause_flow(world.flow),
    "prune": lambda world, place, _: world.stores[place].prune(AT_ONCE),
    "revive": lambda world, place, _: world.revive(place),
    "erase": lambda world, place, _: world.stores[place].erase(world.ids[SHIP]),
}
RETRIES = ["retry", "retry_job"]
SITUATIONS = ["noted", "its hook runs", "ended", "retried"]


@pytest.fixture(scope="module")
def world():
    with stops(), closing(World()) as world:
        yield world


def try_order(world, situation, pair, choose):
    """Run one order of two operations; return what is wrong, and what happened."""
    world.begin(situation)
    actors = [
        Actor(
            place, functools.partial(OPERATIONS[name], world, place), world.pids(place)
        )
        for place, name in enumerate(pair)
    ]
    trace = interleave(actors, choose, world.monitor)
    wrong = [f"{pair[one.name]}: {one.error!r}" for one in actors if one.error]
    wrong += [f"{pair[one.name]}: a deadlock" for one in actors if one.has_deadlocked]
    return wrong + world.judge(), trace


def orders(rng):
    """Yield pairs with an order: in turn each with one interruption, and any at all."""
    pairs = [*itertools.product(RETRIES, OPERATIONS), ("prune", "revive")]
    once = [*itertools.product(SITUATIONS, pairs, range(1, STEPS), (0, 1))]
    rng.shuffle(once)
    once += ALWAYS
    for tried in itertools.count():
        if once and (FULL_S or tried < len(ALWAYS)):
            situation, pair, steps, first = once.pop()
            order = in_turns(first, steps, 99, 99)
            yield situation, pair, f"{first} for {steps}", order
        pair = rng.sample([rng.choice(RETRIES), rng.choice([*OPERATIONS])], 2)
        seed = rng.getrandbits(32)
        order = at_random(random.Random(seed))
        yield rng.choice(SITUATIONS), tuple(pair), f"seed {seed}", order


@pytest.mark.timeout(FULL_S + 300)
def test_in_every_order_a_flow_ends_whole_or_is_gone_whole(world):
    """None is stranded or half deleted, and what succeeded does not run again."""
    rng = random.Random(SEED)
    ends_s = time.monotonic() + FULL_S
    problems, tried = {}, 0
    for situation, pair, order, choose in orders(rng):
        if tried >= GATE_ORDERS and time.monotonic() >= ends_s:
            break
        tried += 1
        wrong, trace = try_order(world, situation, pair, choose)
        if wrong:
            known = problems.setdefault((situation, pair, wrong[0]), [])
            known.append((order, wrong, trace))
    assert not problems, told(problems, tried)


def told(problems, tried):
    """Say what was wrong, with the shortest order for each."""
    lines = [f"seed {SEED}, {tried} orders"]
    for (situation, pair, _), found in sorted(problems.items()):
        order, wrong, trace = min(found, key=lambda one: len(one[2]))
        steps = " ".join(f"{place}:{at}" for place, at in trace)
        lines.append(f"{situation}: {pair} x{len(found)} {order}: {wrong}\n    {steps}")
    return "\n".join(lines)
