"""Quotas of a store against a plain model: what may be leased, and what must be.

The model knows who holds which permits, and asks the pure rules what is in force. A
store may choose among the jobs that fit; whatever it chooses must fit, and it must not
leave a job waiting that fits as well.
"""

import contextlib
import dataclasses
from collections import Counter
from typing import NamedTuple

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from jobpool.core.jobs.job import JobState, PermitAsk, PermitReturn, Throttle
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.quotas.allot import cost_in
from jobpool.core.rules.quotas.definition import Limits, Need
from jobpool.core.rules.quotas.lanes import bucket_id
from jobpool.core.rules.quotas.rules import (
    Override,
    Pause,
    Published,
    TenantOverride,
    Use,
    rules,
)
from jobpool.store.records.jobs import Receipt
from support.store.quotas import publish, quota, stamped, tenant
from support.store.storing import (
    ManualClock,
    ended,
    handed_back,
    new_job,
    snoozed,
    succeeded,
)

A, B, C = "shop.thumbnail", "shop.resize", "shop.fetch"
POOL_OF = {A: "cpu", B: "cpu", C: "io"}
KINDS = {"cpu": (A, B), "io": (C,)}
TTL_S = 10**6
SOON_S = 2.0
"""Within this time a change holds everywhere."""
CALLS_MAX = 20
_replace = msgspec.structs.replace

ENDS = [succeeded, ended, handed_back, snoozed]
DEFINITIONS = [
    ((), {}, ()),
    ((quota("s", concurrency=2),), {A: ["s"], C: ["s"]}, ()),
    ((quota("s", concurrency=3),), {A: [Need("s", 2)], B: ["s"]}, ()),
    ((quota("v", concurrency=1, per="args.v"),), {A: ["v"]}, ()),
    (
        (quota("v", concurrency=2, per="args.w"), quota("s", concurrency=3)),
        {A: ["v", "s"], B: ["s"]},
        (),
    ),
    ((quota("r", rate="1/s", burst=3),), {A: ["r"], B: ["r"]}, ()),
    (
        (quota("r", rate="1/s", burst=2, concurrency=1), quota("t", per="tenant")),
        {B: ["r", "t"]},
        (tenant("*", concurrency=2),),
    ),
]
"""What a run may publish: quotas, what kinds need of them, and rules of tenants."""
OVERRIDES = [
    Override(quota="s", concurrency=1),
    Override(quota="v", concurrency=3),
    Override(quota="t", concurrency=1),
    Override(quota=f"kind:{B}", concurrency=1),
]


NEW_JOBS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([A, A, B, C]),
        "count": st.sampled_from([1, 4]),
        "owner": st.sampled_from([None, None, "x", "y"]),
        "values": st.sampled_from([{"v": "1", "w": "1"}, {"v": "2", "w": "1"}]),
        "priority": st.integers(-1, 1),
        "is_stamped": st.booleans(),
    }
)


class Permit(NamedTuple):
    bucket: int
    cost: int
    taken_ms: int
    had_cap: bool


@dataclasses.dataclass
class ModelJob:
    kind: str
    tenant: str | None
    values: dict[str, str]
    priority: int
    run_at_ms: int
    batch: int
    """Jobs that came together are of one lane: jobs that are alike may not be, by what
    was stamped."""
    state: JobState = JobState.RUNNABLE
    token: int | None = None
    run: str | None = None
    permits: dict[int, list[Permit]] = dataclasses.field(default_factory=dict)
    """By number."""


class QuotaMachine(RuleBasedStateMachine):
    """Rules call the store and the model alike."""

    leases = Bundle("leases")

    def __init__(self):
        super().__init__()
        self.clock = ManualClock()
        self.exits = contextlib.ExitStack()
        self.open_one = self.make_store()
        self.stores = [self.open_one() for _ in range(2)]
        self.jobs = {}
        self.runs = {}
        self.published = {}
        self.overrides, self.tenants, self.pauses = {}, {}, {}
        self.blocked_until_ms = {}
        self.began_ms = {}
        """Of a rate: when permits were taken that did not come back."""
        self.unswept = Counter()
        self.knows = {}
        """Whether anything was in force when a store object looked last."""
        self.touched_ms = {}
        """Of a rate: when it may have been used once more."""
        self.stirred_ms = self.clock.utc_ms()
        """When the rules changed last, or the clock was set back."""
        self.looks = set()
        """Stores that have leased since a change holds everywhere."""

    def teardown(self):
        for store in self.stores:
            store.close()
        self.exits.close()

    @initialize(first=st.sampled_from(DEFINITIONS), second=st.sampled_from(DEFINITIONS))
    def start(self, first, second):
        self.begin(0, "run-0-0", first)
        self.begin(1, "run-1-0", second)

    def begin(self, which, run_id, definition):
        quotas, needs, tenants = definition
        needs = {kind: needs.get(kind, []) for kind in POOL_OF}
        # By the number: then all of the application's versions have an order.
        self.clock.advance(0.001)
        publish(
            self.stores[which],
            *quotas,
            needs=needs,
            tenants=tenants,
            run_id=run_id,
            ttl_s=TTL_S,
            app_version=run_id,
        )
        if self.runs.get(which) != run_id:
            self.published[run_id] = self.clock.utc_ms(), None
        since_ms, _ = self.published[run_id]
        self.runs[which] = run_id
        self.published[run_id] = since_ms, definition
        self.stir()

    def stir(self):
        self.stirred_ms = self.clock.utc_ms()
        self.looks = set()

    # -- what the model says ---------------------------------------------------------

    def in_force(self):
        published = [
            Published(
                run_id=run_id,
                label=run_id,
                app_since_ms=since_ms,
                limits=limits_of(definition),
                needs=needs_of(definition),
            )
            for run_id, (since_ms, definition) in self.published.items()
        ]
        return rules(
            published,
            self.overrides.values(),
            [TenantOverride(tenant=one) for one in self.tenants.values()],
            self.pauses.values(),
            now_ms=self.clock.utc_ms(),
        )

    def in_use(self, bucket, *, at_most=False):
        """Return how many permits are held.

        What was taken while there was no cap may count for a later one, or may not. So
        may what ended while nothing was in force: it goes once its bucket is full.
        """
        return self.unswept[bucket] * at_most + sum(
            one.cost
            for job in self.jobs.values()
            for taken in job.permits.values()
            for one in taken
            if one.bucket == bucket and (at_most or one.had_cap)
        )

    def is_anything_in_force(self):
        known = self.in_force()
        return bool(known.quotas or known.tenants)

    def uses(self, known, job):
        paths = known.counted_paths(job.kind)
        values = {path: job.values.get(path, "") for path in paths}
        return known.uses(job.kind, job.tenant, values)

    def is_closed(self, known, use):
        """Say whether nobody may have a permit of a bucket now."""
        now_ms, limit = self.clock.utc_ms(), known.limit(use.quota, use.value)
        until_ms = max(
            limit.closed_until_ms or 0, self.blocked_until_ms.get(use.bucket, 0)
        )
        return until_ms > now_ms

    def is_full(self, known, use, *, perhaps=True):
        """Say whether a cap keeps a job from a permit, at least perhaps."""
        limit = known.limit(use.quota, use.value)
        cost = cost_in(limit, use.cost)
        cap = limit.concurrency
        return cap is not None and self.in_use(use.bucket, at_most=perhaps) + cost > cap

    def lacks(self, known, use):
        """Say whether a cap or a block keeps a job from a permit."""
        return self.is_full(known, use) or self.is_closed(known, use)

    def may_lack(self, known, use):
        """Say whether a rate may keep a job from a permit: it was used lately."""
        pace = known.limit(use.quota, use.value).pace
        if pace is None:
            return False
        full_ms = 2 * pace.burst * pace.interval_us / 1000 + 1000
        times = self.began_ms.get(use.bucket, ())
        last_ms = max(*times, self.touched_ms.get(use.bucket, 0), 0)
        return self.clock.utc_ms() - last_ms < full_ms

    def take(self, known, job, n, use):
        """Note a permit that the store has granted, and check that it was there."""
        is_there = not (
            self.is_full(known, use, perhaps=False) or self.is_closed(known, use)
        )
        assert is_there, f"{use} was taken, but is not there"
        limit = known.limit(use.quota, use.value)
        cost, now_ms = cost_in(limit, use.cost), self.clock.utc_ms()
        had_cap = limit.concurrency is not None
        permit = Permit(use.bucket, cost, now_ms, had_cap)
        job.permits.setdefault(n, []).append(permit)
        if limit.pace is None:
            return
        times = self.began_ms.setdefault(use.bucket, [])
        times += [now_ms] * cost
        since = [one for one in times if one >= self.stirred_ms]
        for began_ms in set(since):
            later = sum(one >= began_ms for one in since)
            most = (now_ms - began_ms) * 1000 / limit.pace.interval_us
            assert later <= most + limit.pace.burst + 1e-6, f"{use}: {since}"

    def give_back(self, job, *, unbegun=False):
        """Take back all permits of a job's lease."""
        for bucket, cost, at_ms, _ in job.permits.get(0, []) if unbegun else ():
            times = self.began_ms.get(bucket, [])
            for _ in range(min(cost, times.count(at_ms))):
                times.remove(at_ms)
        job.permits = {}

    # -- rules -----------------------------------------------------------------------

    @rule(
        target=leases,
        which=st.integers(0, 1),
        news=st.lists(NEW_JOBS, min_size=1, max_size=3),
        pool=st.sampled_from(["cpu", "cpu", "io"]),
        limit=st.sampled_from([1, 3, 100]),
        seconds=st.sampled_from([0, 0.001, 0.3, 1, 2.5, 10, 3600]),
    )
    def enqueue_and_lease(self, which, news, pool, limit, seconds):
        for new in news:
            self.enqueue(1 - which, **new)
        self.time_passes(seconds)
        return self.lease(which, pool, limit)

    def enqueue(self, which, kind, count, owner, values, priority, is_stamped):  # noqa: PLR0917 - one for each field
        options = {
            "tenant": owner,
            "priority": priority,
            "payload": msgspec.json.encode(values),
        }
        if is_stamped:
            paths = self.in_force().counted_paths(kind)
            stamp = {path: values[path] for path in paths}
            new = stamped(kind, values=stamp, **options)
        else:
            new = new_job(kind, POOL_OF[kind], **options)
        batch = len(self.jobs)
        for made in self.stores[which].enqueue([new] * count):
            self.jobs[made.id] = ModelJob(
                kind, owner, values, priority, self.clock.utc_ms(), batch
            )

    def lease(self, which, pool, limit):
        run, now_ms, known = self.runs[which], self.clock.utc_ms(), self.in_force()
        for job in self.jobs.values():
            if job.state is JobState.PENDING and job.run_at_ms <= now_ms:
                job.state = JobState.RUNNABLE
        self.knows[which] = self.is_anything_in_force()
        self.stores[which].renew(run, TTL_S, anew=True)
        granted, calls, batch = [], 0, None
        while batch is None or (len(granted) < limit and batch.next_due_in_s == 0):
            wanted = {pool: limit - len(granted)}
            batch = self.stores[which].lease(run, wanted, KINDS)
            assert len(batch.leases) <= wanted[pool]
            for one in batch.leases:
                self.lease_one(known, run, pool, one)
            granted += batch.leases
            calls += 1
            assert calls < CALLS_MAX, "the store always says that there is more"
        left = {
            number: job
            for number, job in self.jobs.items()
            if job.state is JobState.RUNNABLE and POOL_OF[job.kind] == pool
        }
        if now_ms >= self.stirred_ms + SOON_S * 1000:
            if which in self.looks:
                self.check_turns(known, granted, left)
                if len(granted) < limit:
                    self.check_rest(known, batch, left)
            self.looks.add(which)
        return multiple(*granted)

    def lease_one(self, known, run, pool, one):
        job = self.jobs[one.id]
        assert job.state is JobState.RUNNABLE
        assert POOL_OF[job.kind] == pool == one.pool
        uses = self.uses(known, job)
        for use in uses:
            self.take(known, job, 0, use)
        assert one.laned == known.is_laned(POOL_OF[job.kind], job.kind)
        assert (one.begin_within_s is not None) == any(
            known.limit(use.quota, use.value).pace for use in uses
        )
        job.state, job.token, job.run = JobState.LEASED, one.token, run

    def check_turns(self, known, granted, left):
        """Of jobs that use the same buckets the most important were leased, in turn."""
        for one in granted:
            job = self.jobs[one.id]
            uses = self.uses(known, job)
            for number, other in left.items():
                if (other.kind, self.uses(known, other)) != (job.kind, uses):
                    continue
                assert job.priority >= other.priority
                is_equal = job.priority == other.priority
                if job.batch == other.batch or (
                    is_equal and not known.is_laned(POOL_OF[job.kind], job.kind)
                ):
                    assert (job.run_at_ms, one.id) < (other.run_at_ms, number)

    def check_rest(self, known, batch, left):
        """What was left waits for something, and the store says until when."""
        for number, job in left.items():
            uses = self.uses(known, job)
            is_held = any(self.lacks(known, use) for use in uses)
            is_held = is_held or any(self.may_lack(known, use) for use in uses)
            assert is_held, f"job {number} waits for nothing"
            self.check_time(known, batch, uses)

    def check_time(self, known, batch, uses):
        """If only a block or a pause with an end holds a job back, its end is said."""
        closed = [use for use in uses if self.is_closed(known, use)]
        if not closed or any(self.is_full(known, use) for use in uses):
            return
        until_ms = max(
            max(
                known.limit(use.quota, use.value).closed_until_ms or 0,
                self.blocked_until_ms.get(use.bucket, 0),
            )
            for use in closed
        )
        if until_ms < 2**60 and not any(self.may_lack(known, use) for use in uses):
            wait_s = (until_ms - self.clock.utc_ms()) / 1000
            said_s = batch.next_due_in_s
            assert said_s is not None and said_s <= wait_s, (  # noqa: PT018 - one promise
                f"it reopens in {wait_s} s, the store says {said_s}: {closed}"
            )

    @rule(
        which=st.integers(0, 1),
        granted=leases,
        step=st.one_of(
            st.sampled_from([(end,) for end in ENDS]),
            st.tuples(
                st.just("ask"),
                st.integers(1, 3),
                st.sampled_from("srv"),
                st.sampled_from(["", "1"]),
                st.integers(1, 2),
            ),
            st.tuples(st.just("return"), st.integers(1, 3)),
            st.tuples(st.just("throttle"), st.sampled_from([3, 30])),
        ),
    )
    def an_attempt_goes_on_or_ends(self, which, granted, step):
        what, *given = step
        if what == "ask":
            self.ask_for_a_permit(which, granted, *given)
        elif what == "return":
            self.return_permits(which, granted, *given)
        elif what == "throttle":
            throttle = Throttle("s", "", given[0] * 1000)
            self.settle(which, _replace(snoozed(granted), throttle=throttle))
        else:
            self.settle(which, what(granted))

    def settle(self, which, settlement):
        job, now_ms = self.jobs[settlement.id], self.clock.utc_ms()
        is_current = job.token == settlement.token
        receipt = Receipt.ACCEPTED if is_current else Receipt.STALE
        assert self.stores[which].settle([settlement]) == [receipt]
        if not is_current:
            return
        if not (self.is_anything_in_force() and self.knows.get(which, True)):
            for one in (one for taken in job.permits.values() for one in taken):
                self.unswept[one.bucket] += one.cost
        self.give_back(job, unbegun=settlement.unbegun)
        job.state, job.token, job.run = settlement.state, None, None
        if settlement.state is JobState.PENDING:
            job.run_at_ms = now_ms + settlement.delay_ms
        if settlement.throttle is not None:
            self.block(settlement.throttle)

    def block_a_bucket(self, which, quota, value, after_s):
        block = Throttle(quota, value, after_s * 1000)
        self.stores[which].block_buckets([block])
        self.block(block)

    def block(self, throttle):
        bucket = bucket_id(throttle.quota, throttle.value)
        until_ms = self.clock.utc_ms() + throttle.after_ms
        former_ms = self.blocked_until_ms.get(bucket, 0)
        self.blocked_until_ms[bucket] = max(former_ms, until_ms)

    def ask_for_a_permit(self, which, granted, n, quota, value, cost):  # noqa: PLR0917 - one for each field
        job, known = self.jobs[granted.id], self.in_force()
        run = job.run or self.runs[which]
        ask = PermitAsk(granted.id, granted.token, n, quota, value, cost)
        (answer,) = self.stores[which].take_permits(run, [ask])
        use = Use(bucket_id(quota, value), quota, value, cost)
        has_it = [one for one in job.permits.get(n, []) if one.bucket == use.bucket]
        if job.token != granted.token:
            assert answer.stale
        elif has_it:  # Without a cap a store may not know that it was asked before.
            assert answer.granted or not has_it[0].had_cap
            self.touched_ms[use.bucket] = self.clock.utc_ms()
        elif cost_in(known.limit(quota, value), cost) < cost:
            assert answer.stale
        elif answer.granted:
            self.take(known, job, n, use)
        else:
            assert not answer.stale
            assert self.lacks(known, use) or self.may_lack(known, use)

    def return_permits(self, which, granted, n):
        self.stores[which].return_permits([PermitReturn(granted.token, n)])
        job = self.jobs[granted.id]
        if job.token == granted.token:
            job.permits.pop(n, None)

    def cancel(self, which, place):
        if waiting := [n for n, j in self.jobs.items() if j.state is JobState.RUNNABLE]:
            number = waiting[place % len(waiting)]
            assert self.stores[which].cancel([number]) == 1
            self.jobs[number].state = JobState.CANCELED

    @rule(
        which=st.integers(0, 1),
        change=st.one_of(
            st.tuples(st.just("publish_again"), st.sampled_from(DEFINITIONS)),
            st.tuples(
                st.just("the_other_one_is_proven_dead"), st.sampled_from(DEFINITIONS)
            ),
            st.tuples(
                st.just("set_or_reset"),
                st.sampled_from(OVERRIDES),
                st.sampled_from([None, 12.0]),
            ),
            st.tuples(st.just("set_or_remove_a_tenant"), st.sampled_from("*x")),
            st.tuples(
                st.just("pause_or_resume"),
                st.sampled_from([("quota", "s"), ("tenant", "x")]),
                st.sampled_from([None, 12.0]),
            ),
            st.tuples(st.just("open_again")),
            st.tuples(
                st.just("block_a_bucket"),
                st.sampled_from("sv"),
                st.sampled_from(["", "1"]),
                st.sampled_from([2, 20]),
            ),
            st.tuples(st.just("cancel"), st.integers(0, 99)),
        ),
    )
    def something_changes(self, which, change):
        what, *given = change
        getattr(self, what)(which, *given)

    def publish_again(self, which, definition):
        self.begin(which, self.runs[which], definition)

    def the_other_one_is_proven_dead(self, which, definition):
        dead, store = self.runs[1 - which], self.stores[which]
        for one in store.leases_of(dead):
            self.settle(which, ended(one, Outcome.LOST))
        store.end_run(dead)
        del self.published[dead]
        number = int(dead.rpartition("-")[2]) + 1
        self.begin(1 - which, f"run-{1 - which}-{number}", definition)

    def set_or_reset(self, which, override, for_s):
        store, now_ms = self.stores[which], self.clock.utc_ms()
        known = self.overrides.pop(override.quota, None)
        if known is not None and (known.until_ms is None or known.until_ms > now_ms):
            assert store.reset_quota(override.quota)
            self.forget_blocks(override.quota)
        else:
            assert store.set_quota(override, for_s=for_s)
            until_ms = for_s and now_ms + round(for_s * 1000)
            added = _replace(override, until_ms=until_ms)
            self.overrides[override.quota] = added
        self.stir()

    def forget_blocks(self, name):
        values = ("", "1", "2", "x", "y")
        for bucket in {bucket_id(name, value) for value in values}:
            self.blocked_until_ms.pop(bucket, None)
            self.began_ms.pop(bucket, None)

    def set_or_remove_a_tenant(self, which, name):
        if self.tenants.pop(name, None) is not None:
            assert self.stores[which].remove_tenant(name)
        else:
            self.tenants[name] = tenant(name, concurrency=1)
            assert self.stores[which].set_tenant(self.tenants[name])
        self.stir()

    def pause_or_resume(self, which, what, for_s):
        store, now_ms = self.stores[which], self.clock.utc_ms()
        known = self.pauses.pop(what, None)
        if known is not None and (known.until_ms is None or known.until_ms > now_ms):
            assert store.resume(**dict([what]))
        else:
            assert store.pause(**dict([what]), for_s=for_s)
            until_ms = for_s and now_ms + round(for_s * 1000)
            self.pauses[what] = Pause(what=what[0], name=what[1], until_ms=until_ms)
        self.stir()

    def time_passes(self, seconds):
        before = self.in_force()
        self.clock.advance(seconds)
        if before.until_ms is not None and before.until_ms <= self.clock.utc_ms():
            self.stir()

    def open_again(self, which):
        self.stores[which].close()
        self.stores[which] = self.open_one()
        self.looks.discard(which)
        self.knows.pop(which, None)

    # -- what always holds -----------------------------------------------------------

    @invariant()
    def use_is_shown_as_it_is(self):
        known = self.in_force()
        for name in known.quotas:
            shown = {
                row.value: row.used
                for row in self.stores[0].buckets(name, 1000)
                if row.used
            }
            for value in ("", "1", "2", "x", "y"):
                bucket = bucket_id(name, value)
                used = shown.pop(value, 0)
                if known.limit(name, value).concurrency is None:
                    assert used == 0
                else:
                    sure = self.in_use(bucket)
                    most = self.in_use(bucket, at_most=True)
                    assert sure <= used <= most, (name, value, sure, used, most)
            assert not shown


def limits_of(definition):
    quotas, _, tenants = definition
    return Limits(quotas=tuple(quotas), tenants=tuple(tenants))


def needs_of(definition):
    _, needs, _ = definition
    return {
        kind: tuple(Need(one) if isinstance(one, str) else one for one in names)
        for kind, names in needs.items()
    }
