"""Two supervisors on one PostgreSQL whose quotas are nearly used up.

The world is made once and put back before each order of two sessions. `judge` says what
is wrong afterwards, by the rows and by what further claims get, without the recount
that would mend a lost note.
"""

import copy
import itertools
import json
import time
from typing import NamedTuple

import msgspec

from jobpool.core.application.current import Claim
from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import PermitAsk, PermitReturn, RequestReport, Throttle
from jobpool.core.rules.quotas.allot import BucketState, cost_in, room_in
from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.definition import Need
from jobpool.core.rules.quotas.rules import Override
from jobpool.store import handler_transactions
from jobpool.store.opening import open_store
from jobpool.store.operations.quotas.lanes import ClaimMemory
from jobpool.store.statements.limits import counted_from
from jobpool.supervisor.maintenance.lost_jobs import reclaim
from support.postgres.server import query_of, server
from support.store.quotas import KIND, OTHER, publish, quota, stamped
from support.store.storing import (
    KINDS,
    ManualClock,
    ended,
    handed_back,
    new_job,
    snoozed,
    succeeded,
)

CAPS = {"vendor": 2, "extra": 1, f"kind:{KIND}": 7}
RUNS = ("run-a", "run-b")
FETCH = "shop.fetch"
"""A kind whose service waits for a probe; three of its jobs wait."""
_DAY_S, _LAPSED_S = 90_000, 61
_TRUNCATES = 60
CHANGE_S = 2
"""So soon a change of what is in force holds everywhere."""
_LIVE = """
SELECT b.id, b.quota, b.value, coalesce(sum(p.cost) FILTER (
  WHERE EXISTS (
    SELECT 1 FROM jobs AS j WHERE j.id = p.job_id AND (
      j.token = p.token OR (j.completed_token = p.token AND EXISTS (
        SELECT 1 FROM runs AS r
        WHERE r.id = p.run_id AND r.ended_at_ms IS NULL))))), 0),
  coalesce(sum(p.cost), 0), b.tat_us, b.block_until_ms, b.breaker
FROM buckets AS b LEFT JOIN permits AS p ON p.bucket = b.id
GROUP BY b.id
"""
_WITHOUT_PERMIT = """
SELECT id FROM jobs AS j WHERE j.state = 'leased' AND j.kind = %s
AND NOT EXISTS (SELECT 1 FROM permits AS p WHERE p.token = j.token AND p.n = 0)
"""
_RUNNABLE = """
SELECT id, kind, tenant, quota_values, payload FROM jobs
WHERE state = 'runnable' AND kind = ANY (%s)
"""
_BLOCKS = "SELECT bucket, max(block_until_ms) FROM bucket_notes GROUP BY bucket"


class Side(NamedTuple):
    """A supervisor: its store, and what it holds."""

    store: object
    run_id: str
    laned: list
    """Leases of a kind that quotas hold back."""
    plain: object
    """A lease of one that they do not."""
    own: object
    """The connection of a handler, or of any caller."""

    def pids(self):
        """Return the server's processes that work for it."""
        session = self.store._server._session
        return [one.info.backend_pid for one in (session.connection, self.own)]


class World:
    """The database and its two supervisors; made once.

    Args:
        pools: rules of pools; in fair ones, claims take turns besides.
    """

    def __init__(self, pools=()):
        self.pools = tuple(pools)
        # What a handler does has the server's own time.
        since_ms = round(time.time() * 1000) - (_DAY_S + _LAPSED_S) * 1000
        self.clock = ManualClock(since_ms)
        self.url = server().store_url()
        self.schema = query_of(self.url)["schema"]
        self.monitor = server().connect()
        self.monitor.execute(f"SET search_path = {self.schema}")
        self.stores = [open_store(self.url, clock=self.clock) for _ in range(2)]
        self.sides = self._prepare(*self.stores)
        self._known = [
            (store._in_force, copy.deepcopy(store._claims)) for store in self.stores
        ]
        self._elapsed = self.clock.now_ms
        self._tables = self._saved()
        self._filled = [
            name for name in self._tables if self._ask(f"TABLE {name} LIMIT 1")
        ]
        self._restored = 0

    def close(self):
        for side in self.sides:
            side.store.close()
            side.own.close()
        self.monitor.close()
        server().drop(self.url)

    def publish(self, store, run_id, *, cap=CAPS[f"kind:{KIND}"]):
        """Let a run publish the quotas; from the application, but for one cap."""
        needs = {KIND: ["vendor", "paced"], OTHER: [], FETCH: ["service"]}
        named = [
            quota("vendor", concurrency=2, per="args.vendor"),
            quota("paced", rate="10/s", burst=12),
            quota("extra", concurrency=1),
            quota("service", breaker=BreakerRule(requests=4, pause_s=1)),
        ]
        needs[KIND] = [Need(one) for one in needs[KIND]]
        publish(
            store,
            *named,
            needs=needs,
            caps={KIND: cap},
            run_id=run_id,
            host=run_id,
            more={"pools": self.pools},
        )

    def _prepare(self, first, second):
        """Have full and half full buckets, blocked lanes, a dead run, and idle rows."""
        self.publish(first, "run-old")
        old = [stamped(values={"vendor": name}) for name in ("dune", "echo")]
        self.old = [one.id for one in first.enqueue(old)]
        ends = first.lease("run-old", {"cpu": 2}, KINDS).leases
        first.settle([succeeded(one) for one in ends])
        first.lease("run-old", {"cpu": 2}, KINDS)  # Lanes are empty.
        first.end_run("run-old")
        self.clock.advance(_DAY_S)
        self.publish(first, "run-dead")
        made = [stamped(values={"vendor": "acme"}) for _ in range(5)]
        made += [stamped(values={"vendor": "bolt"}) for _ in range(3)]
        made += [new_job(payload=b'{"vendor":"bolt"}')]
        made += [stamped(values={"vendor": "acme"}, delay_ms=60_500)]
        first.enqueue(made)
        # Its pause is over before anybody claims: the next of its jobs is the probe.
        (change,) = first.report_requests([RequestReport("service", "", 1, 4, 4)])
        assert change.until_ms < self.clock.now_ms + _LAPSED_S * 1000
        assert len(first.lease("run-dead", {"cpu": 1}, KINDS).leases) == 1
        self.clock.advance(_LAPSED_S)
        for store, run_id in zip((first, second), RUNS, strict=True):
            self.publish(store, run_id)
        one = first.lease("run-a", {"cpu": 1}, KINDS).leases
        two = second.lease("run-b", {"cpu": 2}, KINDS).leases
        assert first.lease("run-a", {"cpu": 9}, KINDS).leases == ()
        self.waiting = [job for (job,) in self._ask("SELECT max(id) FROM jobs")]
        first.enqueue([new_job(OTHER)] * 2)
        plain = [
            store.lease(run, {"cpu": 1}, {"cpu": (OTHER,)}).leases[0]
            for store, run in zip((first, second), RUNS, strict=True)
        ]
        (answer,) = first.take_permits("run-a", [_asked(plain[0], 1, "extra")])
        assert answer.granted
        # Open lanes, of which there are permits for two jobs; and some that are new.
        first.enqueue([stamped(values={"vendor": f"v{n}"}) for n in range(4)])
        two += second.lease("run-b", {"cpu": 1}, KINDS).leases
        for store, run in zip((first, second), RUNS, strict=True):
            (back,) = store.lease(run, {"cpu": 1}, KINDS).leases
            store.settle([handed_back(back)])
        new = [stamped(values={"vendor": one}) for one in ("dune", "coil", "coil")]
        first.enqueue([*new, *[stamped(FETCH) for _ in range(3)]])
        return [
            Side(store, run_id, list(laned), held, server().connect(self.url))
            for store, run_id, laned, held in zip(
                (first, second), RUNS, (one, two), plain, strict=True
            )
        ]

    def _ask(self, query, *values):
        return self.monitor.execute(query, values).fetchall()

    def _saved(self):
        self.monitor.execute("SET session_replication_role = replica")
        found = self._ask(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema = %s AND table_type = 'BASE TABLE'",
            self.schema,
        )
        tables = sorted(name for (name,) in found)
        for name in tables:
            self.monitor.execute(f"CREATE TEMP TABLE saved_{name} AS TABLE {name}")
        return tables

    def restore(self, *, recounts):
        """Put everything back.

        Args:
            recounts: the first claim of each store looks for what no note has told.
        """
        self._restored += 1
        empties = f"TRUNCATE {', '.join(self._tables)};"
        if self._restored % _TRUNCATES:  # Much slower, but leaves nothing to vacuum.
            empties = "".join(f"DELETE FROM {name};" for name in self._tables)  # noqa: S608 - our own names
        puts = "".join(
            f"INSERT INTO {name} OVERRIDING SYSTEM VALUE TABLE saved_{name};"
            for name in self._filled
        )
        self.monitor.execute(f"BEGIN; {empties} {puts} COMMIT")
        self.clock.now_ms = self._elapsed
        for store, (rules, memory) in zip(self.stores, self._known, strict=True):
            store._in_force = rules
            store._claims = ClaimMemory() if recounts else copy.deepcopy(memory)

    # -- what is wrong -----------------------------------------------------------------

    def caps_passed(self):
        """Return buckets of which living attempts hold more than there is."""
        caps = CAPS | dict.fromkeys(["vendor"], 3 if self._is_raised() else 2)
        return [
            f"{quota} {value}: {live} of {caps[quota]}"
            for _, quota, value, live, *_ in self._ask(_LIVE)
            if quota in caps and live > caps[quota]
        ] + [
            f"{live} jobs probe a service"
            for _, quota, _, live, *_, counts in self._ask(_LIVE)
            if quota == "service" and live > 1 and "probing" in (counts or "")
        ]

    def _is_raised(self):
        rows = self._ask("SELECT concurrency FROM quotas WHERE name = 'vendor'")
        return any(cap and cap > CAPS["vendor"] for (cap,) in rows)

    def judge(self, *, has_changed, to_the_end):
        """Return what is wrong once both sessions have ended.

        Args:
            has_changed: what is in force may have changed: that holds within 2 s.
            to_the_end: see as well what is left once every attempt has ended.
        """
        wrong = self.caps_passed()
        self._claim_all()
        if has_changed and self._forgotten():
            self.clock.advance(CHANGE_S)
            self._claim_all()
        wrong += [f"without what there is: {one}" for one in self._forgotten()]
        wrong += self.caps_passed()
        for job in self._ask(_WITHOUT_PERMIT, KIND):
            wrong.append(f"job {job[0]} runs without a permit")
        wrong += [] if has_changed else self._over_rate()
        if not to_the_end:
            return wrong
        self._end_all()
        wrong += [f"after all had ended: {one}" for one in self._forgotten()]
        return wrong + [
            f"{quota} {value}: {held} permits of nobody"
            for _, quota, value, _, held, *_ in self._ask(_LIVE)
            if held
        ]

    def _claim_all(self):
        """Claim as supervisors do: again, as long as they are told to."""
        idle = 0
        for turn in range(40):
            side = self.sides[turn % 2]
            side.store.renew(side.run_id, 60.0, anew=True)
            batch = side.store.lease(side.run_id, {"cpu": 100, "io": 100}, KINDS)
            goes_on = batch.leases or batch.next_due_in_s == 0
            idle = 0 if goes_on else idle + 1
            if idle == len(self.sides):
                return
        raise AssertionError("claims are told to go on for ever")

    def _end_all(self):
        """End every attempt; what waits then begins, until nothing is left to begin."""
        take_back(self, self.sides[0], None)
        for side in self.sides:
            side.store.settle([succeeded(one) for one in (*side.laned, side.plain)])
        for _ in range(20):
            self._claim_all()
            ends = [
                (
                    side.store,
                    [succeeded(one) for one in side.store.leases_of(side.run_id)],
                )
                for side in self.sides
            ]
            for store, some in ends:
                store.settle(some)
            if not any(some for _, some in ends):
                return
            self.clock.advance(
                1.01
            )  # Of rates, and of what was snoozed, there is more.
        raise AssertionError("jobs do not end")

    def _forgotten(self):
        """Return runnable jobs for which there is everything that they need."""
        store = self.stores[0]
        with store._server.reading() as session:
            rules = store._current(session, self.clock.now_ms).rules
        blocks = dict(self._ask(_BLOCKS))
        states = {
            bucket: BucketState(
                bucket,
                rules.limit(quota, value),
                live,
                tat_us,
                max(until_ms, blocks.get(bucket, 0)),
                *counted_from(rules.limit(quota, value), counts),
            )
            for bucket, quota, value, live, _, tat_us, until_ms, counts in self._ask(
                _LIVE
            )
        }
        found = []
        for job_id, kind, tenant, text, payload in self._ask(_RUNNABLE, [KIND, FETCH]):
            values = json.loads(text or bytes(payload))
            short = []
            for use in rules.uses(kind, tenant, values):
                limit = rules.limit(use.quota, use.value)
                state = states.get(use.bucket) or BucketState(
                    use.bucket, limit, 0, 0, 0
                )
                if room_in(state, self.clock.now_ms) < cost_in(limit, use.cost):
                    short.append(use.quota)
            if not short:
                found.append(f"job {job_id}, {kind}, {values}")
        return found

    def _over_rate(self):
        """The clock stood still: no more can have begun than what there was."""
        ((begun,),) = self._ask(
            "SELECT count(*) FROM jobs WHERE kind = %s AND leased_at_ms = %s",
            KIND,
            self.clock.now_ms,
        )
        return [f"{begun} have begun"] if begun > 12 else []


def _asked(granted, n, name, value=""):
    return PermitAsk(granted.id, granted.token, n, name, value, 1)


# -- what a session does: called with the world, its side and its actor ---------------


def claim(_world, side, _actor):
    return side.store.lease(side.run_id, {"cpu": 10}, KINDS)


def claim_one(_world, side, _actor):
    return side.store.lease(side.run_id, {"cpu": 1}, KINDS)


def settle(_world, side, _actor):
    side.store.settle([succeeded(side.laned[-1])])


def settle_all(_world, side, _actor):
    side.store.settle([succeeded(one) for one in (*side.laned, side.plain)])


def settle_and_claim(_world, side, _actor):
    with side.store.transaction():
        side.store.settle([succeeded(side.laned[0])])
        side.store.lease(side.run_id, {"cpu": 10}, KINDS)


def fail(_world, side, _actor):
    side.store.settle([ended(side.laned[0])])


def hand_back(_world, side, _actor):
    side.store.settle([handed_back(one) for one in side.laned])


def throttle(_world, side, _actor):
    end = snoozed(side.laned[0], 0.5)
    said = Throttle("vendor", "acme", 500)
    side.store.settle([msgspec.structs.replace(end, throttle=said)])


def complete(_world, side, actor):
    one = side.laned[0]
    named = Claim(_world.url, one.id, one.kind, one.token, 10**6, 10**6, 10**6)
    with side.own.transaction():
        actor.reach("complete")
        handler_transactions.complete(side.own, named, b"null")
        actor.reach("commit of the handler")


def take_back(world, side, _actor):
    (run,) = [one for one in side.store.open_runs() if one.id == "run-dead"] or [None]
    if run is None:
        return
    with side.store.transaction():
        if side.store.seize("run-dead", by=side.run_id):
            reclaim(side.store, run, running=frozenset(), now_ms=world.clock.now_ms)


def take_permits(_world, side, _actor):
    asks = [_asked(side.plain, 2, "extra"), _asked(side.plain, 3, "vendor", "bolt")]
    side.store.take_permits(side.run_id, asks)


def return_permits(_world, side, _actor):
    side.store.return_permits([PermitReturn(side.plain.token, 1)])


def block(_world, side, _actor):
    side.store.block_buckets([Throttle("paced", "", 700), Throttle("vendor", "x", 9)])


def report_failures(_world, side, _actor):
    side.store.report_requests([RequestReport("service", "", 7, 4, 4)])


def claim_io(_world, side, _actor):
    side.store.lease(side.run_id, {"io": 10}, KINDS)


def _answers(side, failures):
    """Report what the probe's request came to, if this side's attempt is the probe."""
    side.store.report_requests(
        [
            RequestReport("service", "", one.token, 1, failures)
            for one in side.store.leases_of(side.run_id)
        ]
    )


def probe_well(_world, side, _actor):
    side.store.lease(side.run_id, {"io": 10}, KINDS)
    _answers(side, 0)


def probe_badly(_world, side, _actor):
    side.store.lease(side.run_id, {"io": 10}, KINDS)
    _answers(side, 1)


def enqueue(_world, side, _actor):
    values = [{"vendor": one} for one in ("dune", "acme", "coil")]
    side.store.enqueue([stamped(values=one) for one in values])


def enqueue_strays(_world, side, _actor):
    side.store.enqueue([new_job(payload=b'{"vendor":"echo"}')])
    side.store.enqueue([new_job(payload=b'{"vendor":"coil"}', priority=3)])


def enqueue_joined(_world, side, actor):
    with side.own.transaction():
        side.store.enqueue(
            [stamped(values={"vendor": one}) for one in ("echo", "bolt", "coil")],
            connection=side.own,
        )
        actor.reach("commit of the caller")


def prune(_world, side, _actor):
    side.store.prune(Retention())


def erase(world, side, _actor):
    side.store.erase(world.old)


def republish(world, side, _actor):
    world.publish(side.store, side.run_id, cap=5)


def cancel(world, side, _actor):
    side.store.cancel(range(world.waiting[0] - 4, world.waiting[0] + 1))


def raise_cap(_world, side, _actor):
    side.store.set_quota(Override(quota="vendor", concurrency=3))


def lower_cap(_world, side, _actor):
    side.store.set_quota(Override(quota=f"kind:{KIND}", concurrency=2))


def reset(_world, side, _actor):
    side.store.reset_quota("paced")


def pause(_world, side, _actor):
    side.store.pause(quota="vendor")


def pause_and_resume(_world, side, _actor):
    side.store.pause(quota="vendor")
    side.store.resume(quota="vendor")


OPERATIONS = {
    one.__name__: one
    for one in (
        *(claim, claim_one, settle, settle_all, settle_and_claim, fail, hand_back),
        *(claim_io, report_failures, probe_well, probe_badly),
        *(throttle, complete, take_back, take_permits, return_permits, block),
        *(enqueue, enqueue_strays, enqueue_joined, prune, erase, cancel, republish),
        *(raise_cap, lower_cap, reset, pause, pause_and_resume),
    )
}
CHANGES = frozenset(
    one.__name__
    for one in (republish, raise_cap, lower_cap, reset, pause, pause_and_resume)
)
"""They change what is in force. A claim under the former rules may block a lane after
all lanes were opened, and the recount finds that."""
PAIRS = tuple(itertools.combinations_with_replacement(OPERATIONS, 2))
