"""Two sessions at jobs of one unique text, interleaved at every statement.

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

import psycopg
import pytest

from jobpool.core.application.current import Claim
from jobpool.core.jobs.job import UNFINISHED, Debounce, JobState, OnConflict
from jobpool.core.rules.admission import Admission
from jobpool.store import handler_transactions
from jobpool.store.opening import open_store
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.operating import Filter
from support.postgres.interleaving import (
    Actor,
    at_random,
    in_turns,
    interleave,
    stops,
)
from support.postgres.server import query_of, server
from support.seeds import seed
from support.store.storing import (
    KINDS,
    ManualClock,
    begin_run,
    ended,
    handed_back,
    new_job,
    snoozed,
    succeeded,
)

FULL_S = float(os.environ.get("JOBPOOL_TEST_INTERLEAVINGS", "0"))
SEED = seed("JOBPOOL_TEST_SEED")
GATE_ORDERS = 40
STEPS = 14
"""An operation has about so many statements; one that has fewer is not interrupted."""
_WAITING = """
SELECT count(*) FROM jobs AS j LEFT JOIN debounced AS d ON d.job_id = j.id
WHERE (j.unique_text = %(text)s OR (d.waits AND d.unique_text = %(text)s))
AND j.finished_at_ms IS NULL AND j.state <> 'leased' AND j.attempt = 0 AND j.snoozes = 0
"""
ACTIONS = {action.value: Debounce(action) for action in OnConflict}
ACTIONS["postpone"] = Debounce(OnConflict.POSTPONE)
START = Debounce(OnConflict.REPLACE, until_start=True)
KEEP_START = Debounce(until_start=True)


class World:
    """One queue, and two stores at it; what each order begins with has ended before."""

    def __init__(self):
        self.clock = ManualClock(round(time.time() * 1000) - 10**9)
        self.url = server().store_url()
        self.monitor = server().connect()
        self.monitor.execute(f"SET search_path = {query_of(self.url)['schema']}")
        self.stores = [open_store(self.url, clock=self.clock) for _ in range(2)]
        self.owns = [server().connect(self.url) for _ in range(2)]
        for place, store in enumerate(self.stores):
            begin_run(store, f"run-{place}")
        self._numbers = itertools.count(1)
        self.begin("nothing")

    def close(self):
        for one in (*self.stores, *self.owns, self.monitor):
            one.close()
        server().drop(self.url)

    def pids(self, place):
        session = self.stores[place]._server._session
        return [one.info.backend_pid for one in (session.connection, self.owns[place])]

    def begin(self, situation):
        """Bring a new text into a situation."""
        for place, store in enumerate(self.stores):
            store.renew(f"run-{place}", 60.0, anew=True)
        self.text = f"u{next(self._numbers)}"
        self.granted, self.runs, self.updates = None, [], set()
        self.unsettled, self.kept, self.begun = [], None, {}
        if situation != "nothing":
            first = START if situation == "open until start" else ACTIONS["replace"]
            self.enqueue(0, b"0", first)
        if situation in {"running", "followed"}:
            (self.granted,) = self.claim(0)
        if situation == "followed":
            self.enqueue(0, b"00", ACTIONS["replace"])
        self.updates.clear()
        self.begun.clear()
        self.first = [] if self.granted is None else [self.granted.id]

    def enqueue(self, place, payload, debounce):
        job = new_job(payload=payload, unique=self.text, debounce=debounce)
        if debounce.on_conflict is OnConflict.POSTPONE:
            job = new_job(
                payload=payload, unique=self.text, debounce=debounce, delay_ms=5
            )
        (stored,) = self.stores[place].enqueue([job])
        if stored.created or stored.replaced:
            self.updates.add(payload)
        return stored

    def claim(self, place):
        leases = self.stores[place].lease(f"run-{place}", {"cpu": 5}, KINDS).leases
        self.runs += [one.payload for one in leases]
        self.begun |= dict.fromkeys(one.id for one in leases)
        self.unsettled += [succeeded(one) for one in leases]
        return leases

    def settle(self, place, end):
        """Settle the job that runs, unless another one's transaction holds it."""
        for _ in range(20):
            if self.stores[place].settle([end]) != [Receipt.LATER]:
                self.unsettled = [one for one in self.unsettled if one.id != end.id]
                return

    def judge(self, pair, trace):
        """Return what is wrong, and run everything to its end."""
        wrong = []
        store = self.stores[0]
        store.release_followers()
        if self.granted is not None:
            self.settle(0, succeeded(self.granted))
        ((waiting,),) = self.monitor.execute(_WAITING, {"text": self.text}).fetchall()
        most = 1 + ("hand_back" in pair)
        if waiting > most:
            wrong.append(f"{waiting} jobs of one text wait")
        if self.kept is not None and self.kept in self.begun:
            commits = [who for who, at in trace if "commit" in at]
            keeper = pair.index("keep_in_transaction")
            if commits and commits[-1] == keeper:
                wrong.append("a job that was kept began before the commit")
        for _ in range(12):
            self.clock.advance(1)
            for end in [*self.unsettled]:
                self.settle(0, end)
            self.unsettled.clear()
            self.claim(0)
        unfinished = store.count(Filter(states=UNFINISHED))
        if unfinished:
            wrong.append(f"{unfinished} jobs never ran")
            store.cancel([one.id for one in store.find(Filter(states=UNFINISHED))])
        if self.updates and {*self.runs[-1:]}.isdisjoint(self.updates):
            wrong.append(f"the last of {self.updates} is lost: {self.runs}")
        return wrong


def enqueues(debounce):
    """Return an operation that enqueues with arguments of its own."""

    def run(world, place, actor):
        world.enqueue(place, f"by {place}".encode(), debounce)

    return run


def in_transaction(world, place, actor):
    with world.stores[place].transaction():
        world.enqueue(place, f"by {place}".encode(), ACTIONS["replace"])
        actor.reach("more of the transaction")


def keep_in_transaction(world, place, actor):
    with world.stores[place].transaction():
        stored = world.enqueue(place, f"by {place}".encode(), KEEP_START)
        actor.reach("more of the transaction")
        if not stored.created and stored.state is JobState.RUNNABLE:
            world.kept = stored.id


def settles(end_of):
    def run(world, place, actor):
        if world.granted is not None:
            world.settle(place, end_of(world.granted))

    return run


def complete(world, place, actor):
    """The handler completes its job in a transaction of its own."""
    if world.granted is None:
        return
    one, own = world.granted, world.owns[place]
    claim = Claim(world.url, one.id, one.kind, one.token, 10**6, 10**6, Admission())
    actor.reach("complete")
    with own.transaction():
        handler_transactions.complete(own, claim, b"1")
        actor.reach("commit of the handler")
    world.settle(place, succeeded(one))


def cancel(world, place, actor):
    world.stores[place].cancel(world.first)


OPERATIONS = {
    "replace": enqueues(ACTIONS["replace"]),
    "postpone": enqueues(ACTIONS["postpone"]),
    "until_start": enqueues(START),
    "keep": enqueues(KEEP_START),
    "replace_in_transaction": in_transaction,
    "keep_in_transaction": keep_in_transaction,
    "claim": lambda world, place, actor: world.claim(place),
    "succeed": settles(succeeded),
    "retry": settles(functools.partial(ended, retry_in_s=0.0)),
    "snooze": settles(functools.partial(snoozed, after_s=1.0)),
    "die": settles(functools.partial(ended, give_up=True)),
    "hand_back": settles(handed_back),
    "complete": complete,
    "cancel": cancel,
    "search": lambda world, place, actor: world.stores[place].release_followers(),
}
PRODUCERS = [*OPERATIONS][:6]
ALWAYS = [("open", ("replace", "claim"), 5)]
"""What is tried in each order with one interruption; and how many there may be."""
SITUATIONS = ["nothing", "open", "open until start", "running", "followed"]


@pytest.fixture(scope="module")
def world():
    with stops(), closing(World()) as world:
        yield world


def try_order(world, situation, pair, choose):
    """Run one order of two operations; return what is wrong, and what happened."""
    world.begin(situation)
    actors = [
        Actor(
            place,
            functools.partial(OPERATIONS[name], world, place),
            world.pids(place),
        )
        for place, name in enumerate(pair)
    ]
    trace = interleave(actors, choose, world.monitor)
    wrong = [
        f"{pair[one.name]}: {one.error!r}"
        for one in actors
        if one.error and not is_superseded(one.error)
    ]
    wrong += [f"{pair[one.name]}: a deadlock" for one in actors if one.has_deadlocked]
    return wrong + world.judge(pair, trace), trace


def is_superseded(error):
    """Whether a handler has lost its job to somebody, as it must."""
    return type(error).__name__ == "Superseded" or isinstance(
        error, psycopg.errors.InFailedSqlTransaction
    )


def orders(rng):
    """Yield pairs with an order: in turn each with one interruption, and any at all."""
    once = [
        (situation, pair, steps, first)
        for situation in SITUATIONS
        for pair in itertools.product(PRODUCERS, OPERATIONS)
        for steps in range(1, STEPS)
        for first in (0, 1)
    ]
    rng.shuffle(once)
    for situation, pair, steps in ALWAYS:
        for count, first in itertools.product(range(1, steps), (0, 1)):
            order = in_turns(first, count, 99, 99)
            yield situation, pair, f"{first} for {count}", order
    while True:
        if FULL_S and once:
            situation, pair, steps, first = once.pop()
            yield (
                situation,
                pair,
                f"{first} for {steps}",
                in_turns(first, steps, 99, 99),
            )
        pair = rng.sample([rng.choice(PRODUCERS), rng.choice([*OPERATIONS])], 2)
        seed = rng.getrandbits(32)
        yield (
            rng.choice(SITUATIONS),
            tuple(pair),
            f"seed {seed}",
            at_random(random.Random(seed)),
        )


@pytest.mark.timeout(FULL_S + 300)
def test_in_every_order_no_update_is_lost_and_one_job_waits(world):
    """The last job that begins has the newest arguments, and none waits for ever."""
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
