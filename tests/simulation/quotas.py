"""Quotas in a life: who declares and changes them, and what the store grants of them.

Theory of operation. The application declares quotas, others in its second version.
Operators pause, set and reset them. With each lease and each permit goes a record of
what it took and of what was in force (`inforce`) in that very transaction; `permits`
says what is wrong with it. Twice a second the world looks for jobs that could
begin and do not: with all permits free, as counted here, and an idle slot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.config.settings import Fair, PoolSettings
from jobpool.core.formats import QUOTAS
from jobpool.core.jobs.job import (
    JobState,
    PermitAnswer,
    PermitAsk,
    PermitReturn,
    Throttle,
)
from jobpool.core.rules.quotas.breaker import BreakerChange, BreakerState
from jobpool.core.rules.quotas.definition import DEFAULT_THROTTLE_MAX_S, Quota, Tenant
from jobpool.core.rules.quotas.gcra import SLOW_MAX_S, pace
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.rules import Override
from jobpool.core.rules.quotas.shares import PoolRule
from jobpool.errors import JobpoolError
from jobpool.sandbox.protocol.messages import RunJob
from jobpool.store.memory.tables.ordered_set import id_of
from jobpool.store.memory.tables.rows import Row
from simulation.inforce import InForce, Needed
from simulation.plan import JobPlan, QuotasPlan
from simulation.retries import Retries, is_retry
from support.store.history import (
    Blocked,
    Downstream,
    Idled,
    Record,
    Refilled,
    Settled,
    Took,
)
from support.store.permits import HOST, PICK_UP_S

if TYPE_CHECKING:
    from simulation.store import SimStore
    from simulation.supervisor import SimSupervisor
    from simulation.world import World

LOOK_EVERY_S = 0.5
AGAIN_S = 1.0
REFUSED_MAX = 9
"""A job that gets no permit comes back after two seconds, four, and so on so often."""
LOOKED_AT = 20
"""Jobs of each kind, the first ones, are looked at for idleness."""


class Level:
    """How many permits a rate has at least, if none ever comes back unused."""

    def __init__(self, taken: Needed, rate: Rate, now_s: float) -> None:
        """Begin with an empty bucket: what was before is not known."""
        self.numbers = taken.numbers
        self._pace = pace(rate, taken.numbers.burst)
        slow = SLOW_MAX_S * 1e6 / self._pace.interval_us
        self._left = self._pace.capacity - self._pace.burst - slow
        self._at_s = now_s

    def left(self, now_s: float) -> float:
        """Return what there is now."""
        gained = (now_s - self._at_s) * 1e6 / self._pace.interval_us
        self._left = min(self._pace.burst, self._left + gained)
        self._at_s = now_s
        return self._left

    def take(self, cost: int, now_s: float) -> None:
        """Take some."""
        least = self._pace.capacity - self._pace.burst
        left = min(self._pace.capacity, self.left(now_s))
        self._left = max(least, left - cost)


class Quotas:
    """The quotas of a world, and the book of their permits."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._versions = world.plan.quotas
        self.has_any = bool(self._versions)
        self._deployed = 1
        self._held: dict[tuple[int, int], list[Took]] = {}
        """What the store has granted and has not got back, as committed."""
        self._runs: dict[int, str] = {}
        """Who was given a token."""
        self._levels: dict[str, Level] = {}
        self._blocked_ms: defaultdict[str, float] = defaultdict(float)
        self._jumped_s = 0.0
        self._fits_since_s: dict[int, float] = {}
        self._free_since_s: dict[tuple[str, str], float] = {}
        self._said: set[int] = set()
        self._refused: Counter[int] = Counter()
        self._retries = Retries(world)

    @property
    def plan(self) -> QuotasPlan:
        """What the deployed version says."""
        return self._versions[min(self._deployed, len(self._versions)) - 1]

    def declare(self) -> None:
        """Let the application that loads from now on declare what its version does."""
        if not self.has_any:
            return
        report, plan = self._world.report, self.plan
        rules = {one.name: one for one in plan.pools}
        self._world.settings = replace(
            self._world.settings,
            tenants={one.name: one for one in plan.tenants},
            retry_budget=plan.retry_budget,
            pools=tuple(
                _by_rule(pool, rules.get(pool.name, PoolRule(name=pool.name)))
                for pool in self._world.settings.pools
            ),
        )
        self._world.report = replace(
            report,
            version=str(self._deployed),
            quotas=plan.quotas,
            handlers=tuple(self._with_needs(spec) for spec in report.handlers),
        )

    def _with_needs(self, spec: HandlerSpec) -> HandlerSpec:
        plan = self.plan
        needs, cap = plan.needs.get(spec.kind, ()), plan.caps.get(spec.kind)
        return replace(spec, needs=needs, concurrency=cap)

    def begin(self) -> None:
        """Begin to look."""
        if self.has_any:
            self._world.kernel.after(LOOK_EVERY_S, self._look)

    def quota(self, name: str) -> Quota | None:
        """Return a quota as the deployed version declares it."""
        return next((one for one in self.plan.quotas if one.name == name), None)

    def asked_by(self, job: JobPlan) -> tuple[str, str] | None:
        """Return the bucket that a job asks for within its attempts, if it does."""
        quota = self.quota(job.asks) if self.has_any else None
        taken = [v.needs.get(job.kind, ()) for v in self._versions]
        if quota is None or any(n.quota == job.asks for needs in taken for n in needs):
            return None  # it has what its start took
        if quota.per is None:
            return quota.name, ""
        return quota.name, (job.tenant or "") if quota.per == "tenant" else job.value

    def refused(self, frame: RunJob) -> float:
        """Return when a job comes back that got no permit, later each time."""
        self._refused[frame.id] += 1
        return float(2 ** min(REFUSED_MAX, self._refused[frame.id]))

    # -- operators ---------------------------------------------------------------------

    def deploy(self) -> None:
        """Deploy the application's second version."""
        self._deployed = 2
        self.declare()

    def change(self, what: str, where: int, seconds: float) -> None:
        """Pause, set or reset some quota or tenant; it ends after a while."""
        plan = self.plan
        names = [one.name for one in plan.quotas if not one.host_only]
        name = names[where % len(names)]
        if what == "reset":
            self._do(lambda store: store.reset_quota(name))
        elif what == "pause":
            whom: dict[str, Any] = {"quota": name} if where % 3 else {"tenant": "a"}
            self._do(
                lambda store: store.pause(**whom),
                seconds,
                lambda store: store.resume(**whom),
            )
        elif what == "set_tenant":
            tenant = Tenant(name="ab*"[where % 3], concurrency=1 + where % 3)
            self._do(
                lambda store: store.set_tenant(tenant),
                seconds,
                lambda store: store.remove_tenant(tenant.name),
            )
        else:
            quota = self.quota(name)
            override = Override(quota=name, concurrency=1 + where % 4)
            if quota is not None and quota.rate is not None and where % 2:
                rate = Rate(1.0 + where % 7, 1.0)
                override = Override(quota=name, rate=rate, burst=1 + where % 3)
            elif where % 5 == 0:
                own = f"kind:{self._world.plan.pools[0][0]}.work"
                override = Override(quota=own, concurrency=1 + where % 2)
            for_s = seconds + 0.001
            self._do(lambda store: store.set_quota(whole(store, override), for_s=for_s))

    def _do(
        self,
        act: Callable[[SimStore], object],
        seconds: float = 0.0,
        then: Callable[[SimStore], object] | None = None,
    ) -> None:
        """Do something as an operator, and then something else."""

        def operate(store: SimStore) -> None:
            self._attempt(act, store)
            if then is not None:
                self._world.kernel.sleep(seconds)
                self._attempt(then, store)

        self._world.as_operator(operate)

    def _attempt(self, act: Callable[[SimStore], object], store: SimStore) -> None:
        """Do something; again, until it has succeeded."""
        while True:
            try:
                act(store)
            except JobpoolError:
                self._world.kernel.sleep(AGAIN_S)
            else:
                self._world.wake()
                return

    def clock_was_set(self) -> None:
        """A clock that the store may use was set."""
        self._retries.clock_was_set()
        if self.has_any:
            self._world.note(Refilled(at_s=self._world.kernel.now_s, quota=""))

    # -- what the store does, within its transaction -----------------------------------

    def leased(self, run: str, row: Row, token: int) -> Iterator[Record]:
        """Yield what a lease has taken."""
        if not self.has_any:
            return
        rules = InForce(self._world.database, self._now_ms())
        self._runs[token] = run
        for one in rules.needed(row):
            yield self._took(one, row.id, token, 0)
        if (budget := rules.retry_budget) is not None:
            yield from self._retries.begun(row, token, budget, self._now_ms())
        record = self._world.database.kinds.get((row.new.kind, run))
        for need in () if record is None else record.needs:
            quota = self.quota(need.quota)
            if quota is not None and quota.host_only:
                yield Took(
                    at_s=self._world.kernel.now_s,
                    job=row.id,
                    token=token,
                    n=0,
                    bucket=f"{HOST}{quota.name}@{run}",
                    cost=need.cost,
                    cap=quota.concurrency,
                    per_s=None,
                    burst=None,
                )

    def granted(self, run: str, ask: PermitAsk, answer: PermitAnswer) -> Iterator[Took]:
        """Yield what a permit has taken, if it is a new one."""
        if answer.granted and (ask.token, ask.n) not in self._held:
            self._runs[ask.token] = run
            rules = InForce(self._world.database, self._now_ms())
            found = rules.of(ask.quota, ask.value, ask.cost)
            yield self._took(found, ask.job_id, ask.token, ask.n)

    def blocked(self, block: Throttle) -> Blocked:
        """Return what a block means."""
        return Blocked(
            at_s=self._world.kernel.now_s,
            bucket=f"{block.quota}={block.value}",
            after_s=min(block.after_ms / 1000, DEFAULT_THROTTLE_MAX_S),
        )

    def turned(self, change: BreakerChange, store_ms: int) -> Downstream:
        """Return what it means that a breaker has opened, or was closed."""
        is_open = change.state is BreakerState.OPEN
        self._world.sometimes[f"a breaker {'opened' if is_open else 'closed'}"] += 1
        return Downstream(
            at_s=self._world.kernel.now_s,
            bucket=f"{change.quota}={change.value}",
            pause_s=(change.until_ms - store_ms) / 1000 if is_open else None,
        )

    def _took(self, one: Needed, job: int, token: int, n: int) -> Took:
        rate = one.numbers.rate
        self._world.sometimes["a permit was taken"] += 1
        return Took(
            at_s=self._world.kernel.now_s,
            job=job,
            token=token,
            n=n,
            bucket=one.bucket,
            cost=one.cost,
            cap=one.numbers.cap,
            per_s=None if rate is None else rate.permits / rate.per_s,
            burst=None if rate is None else one.numbers.burst,
            closed=one.closed,
        )

    # -- the book ----------------------------------------------------------------------

    def given_back(self, returns: Sequence[PermitReturn]) -> None:
        """The store has got permits back."""
        for one in returns:
            self._held.pop((one.token, one.n), None)

    def committed(self, record: Record) -> None:
        """Keep a record that was committed."""
        if not self.has_any:
            return
        match record:
            case Took():
                self._held.setdefault((record.token, record.n), []).append(record)
                self._count(record)
            case Blocked():
                until_ms = self._now_ms() + record.after_s * 1000
                former_ms = self._blocked_ms[record.bucket]
                self._blocked_ms[record.bucket] = max(until_ms, former_ms)
                self._world.sometimes["a bucket was blocked"] += 1
            case Refilled():
                # Blocks end by the store's clock, even if that was set back.
                self._levels.clear()
                for bucket in self._blocked_ms if record.quota else ():
                    if bucket.partition("=")[0] == record.quota:
                        self._blocked_ms[bucket] = 0.0
            case Settled():
                self._ended(record)

    def _ended(self, end: Settled) -> None:
        if end.receipt != "later" and not end.by_itself:
            for key in [key for key in self._held if key[0] == end.token]:
                del self._held[key]

    def _count(self, took: Took) -> None:
        found = self._levels.get(took.bucket)
        if found is not None and took.per_s is not None:
            found.take(took.cost, took.at_s)

    def left(self) -> Iterator[str]:
        """Yield what is held after the end."""
        for key, permit in self._world.database.permits:
            yield f"job {permit.job_id} holds a permit of {key.bucket} as {key.token}"

    # -- what must hold: at any time ---------------------------------------------------

    def _look(self) -> None:
        world, kernel = self._world, self._world.kernel
        if not world.is_restless:
            return
        jumped_s = world.store_clock(world.hosts[0]).jumped_s
        if jumped_s != self._jumped_s:
            self._jumped_s = jumped_s
            self._fits_since_s.clear()
        rules = InForce(world.database, self._now_ms())
        free = {
            (one.name, pool): (one, pool)
            for one in world.supervisors
            if self._holds_leases(one)
            for pool in one.idle_pools()
        }
        used = self._used()
        fits = set() if self._suspects(rules, used) else self._fitting(rules, used)
        self._free_since_s = {
            key: self._free_since_s.get(key, kernel.now_s) for key in free
        }
        self._fits_since_s = {
            job: self._fits_since_s.get(job, kernel.now_s) for job in fits
        }
        for key, (one, pool) in free.items():
            for job, since_s in self._fits_since_s.items():
                waits_s = kernel.now_s - max(since_s, self._free_since_s[key])
                if waits_s > PICK_UP_S and self._may_run(one, pool, job):
                    self._idled(job, waits_s)
        kernel.after(LOOK_EVERY_S, self._look)

    def _idled(self, job: int, seconds: float) -> None:
        if job not in self._said:
            self._said.add(job)
            at_s = self._world.kernel.now_s
            self._world.note(Idled(at_s=at_s, job=job, seconds=seconds))

    def _holds_leases(self, one: SimSupervisor) -> bool:
        """Say whether a run is given any: where leases end by time, its own has not."""
        run = self._world.database.runs.get(one.name)
        is_over = run is not None and run.lease_until_ms <= self._now_ms()
        return run is not None and not (self._world.plan.shared and is_over)

    def _may_run(self, one: SimSupervisor, pool: str, job: int) -> bool:
        row = self._world.database.jobs.get(job)
        return row is not None and row.new.pool == pool and one.takes(row.new.kind)

    def _suspects(self, rules: InForce, used: Counter[str]) -> bool:
        """Say whether a suspect may have its turn: then others wait for it."""
        database = self._world.database
        rows = [row for job in database.suspects if (row := database.jobs.get(job))]
        return any(row.state is JobState.LEASED for row in rows) or any(
            row.state is JobState.RUNNABLE and self._fits(rules, used, row)
            for row in rows
        )

    def _fitting(self, rules: InForce, used: Counter[str]) -> set[int]:
        """Return the runnable jobs that nothing stands in the way of."""
        world, database = self._world, self._world.database
        now_ms = self._now_ms()
        pauses = {what for what in database.paused(now_ms) if what[0] != "quota"}
        if database.least_format < QUOTAS or ("store", "") in pauses:
            return set()
        found = set()
        for (pool, kind), queue in database.jobs.runnable.items():
            if ("pool", pool) in pauses or ("kind", kind) in pauses:
                continue
            for rank in queue.lowest(LOOKED_AT):
                row = database.jobs[id_of(rank)]
                if row.is_late(now_ms) or world.is_locked(row.id):
                    continue
                if row.id not in database.suspects and self._fits(rules, used, row):
                    found.add(row.id)
        return found

    def _fits(self, rules: InForce, used: Counter[str], row: Row) -> bool:
        """Say whether a job's permits are free, as counted here."""
        now_s = self._world.kernel.now_s
        if rules.retry_budget is not None and is_retry(row):
            return False  # It waits for its budget, as long as that takes.
        for one in rules.needed(row):
            numbers, bucket = one.numbers, one.bucket
            if one.closed or self._blocked_ms[bucket] > self._now_ms():
                return False
            if numbers.cap is not None and used[bucket] + one.cost > numbers.cap:
                return False
            if numbers.rate is not None:
                level = self._levels.get(bucket)
                if level is None or level.numbers[1:] != numbers[1:]:
                    level = self._levels[bucket] = Level(one, numbers.rate, now_s)
                if level.left(now_s) < one.cost:
                    return False
        return True

    def _used(self) -> Counter[str]:
        runs = self._world.database.runs
        used: Counter[str] = Counter()
        for (token, _), all_taken in self._held.items():
            run = runs.get(self._runs[token])
            if run is not None and run.ended_at_ms is None:
                for took in all_taken:
                    used[took.bucket] += took.cost
        return used

    def _now_ms(self) -> int:
        return self._world.store_clock(self._world.hosts[0]).utc_ms()


def _by_rule(pool: PoolSettings, rule: PoolRule) -> PoolSettings:
    return replace(pool, fair=Fair(rule.fair or "none"), aging_s=rule.aging_s)


def whole(store: SimStore, override: Override) -> Override:
    """Return what an operator sets, with what was set before named as well."""
    before = next(
        (row.override for row in store.quotas() if row.name == override.quota), None
    )
    kept = {
        name: value
        for name in ("rate", "burst", "concurrency")
        if getattr(override, name) is None
        and (value := getattr(before, name, None)) is not None
    }
    return replace(override, **kept)
