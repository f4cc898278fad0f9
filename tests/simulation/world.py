"""The world of one scenario: everything in it, from the first start to the last end.

Theory of operation. A scenario has two parts. In the first, jobs come in and faults
happen, and supervisors that end are started again, as a service manager would. Then it
is quiet: the faults are repaired, and everything must come to its end. At last the
supervisors are drained, and nothing may be left. What happened is a `History`;
`invariants` says what is wrong with it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import msgspec

from jobpool.core.events.event import Event
from jobpool.core.events.supervisor import Alarm, LeaseFenced, SupervisorDraining
from jobpool.core.jobs.job import NewJob
from jobpool.errors import JobpoolError, OutcomeUnknown
from jobpool.sandbox.protocol.messages import RunJob
from jobpool.store.memory.tables.rows import Row
from jobpool.store.records.runs import Run
from jobpool.supervisor.machine import inputs as inp
from simulation.application import call_of, report_of, settings_of
from simulation.completing import Completions
from simulation.concluding import conclude
from simulation.flows import Flows
from simulation.host import Host, HostClock, RunDir, RunPath, StoreClock, Tree
from simulation.kernel import EVENTS_MAX, LONG_EVENTS_MAX, Endless, Kernel, Process
from simulation.nemesis import Nemesis
from simulation.plan import Fate, Fault, JobPlan, Plan
from simulation.quotas import Quotas
from simulation.schedules import APPLICATION, Schedules
from simulation.store import Link, SimDatabase, SimStore
from simulation.supervisor import SimSupervisor, check_often, in_virtual_time
from simulation.versions import Versions
from support.store.history import Called, Disturbed, History, Record

SETTLE_S = 300.0
"""After the last job reclaimers end what they still have in hand: every fourth of their
checks is for runs of their own host."""
PATIENCE_S = 8 * 3600.0
"""So long everything may take to end once it is quiet; back-off takes an hour."""
LONG_PATIENCE_S = 60 * 86400.0
CHECKS = 3
"""So many are enough for everything that is done now and then."""
END_S = 300.0
QUIET_TTL_S = 300.0
QUIET_PAUSE_S = 60.0
QUIET_CHECKS_S = 600.0
QUIET_FOLDS_S = 30.0
"""Nearly all that supervisors did in the quiet was to ask for kinds that are held."""
AGAIN_S = 1.0
SNOOZE_S = 0.01
"""For so long an attempt works before it says "not yet"."""
REASONS = frozenset(("SIGTERM", "SIGQUIT", "a new version", "the end"))
"""For which a supervisor may end; all others are its own mistakes."""
ENDED_BY_OTHERS = frozenset(("its run was ended from outside", "the store refuses"))
FORGOTTEN_S = 20 * 3600.0
"""A run that was gone for a day, and an hour less if a clock was set, is over."""
OK = Fate("ok", 0.5)


class World:
    """Everything of one scenario. Also the supervisors' observer."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        events_max = LONG_EVENTS_MAX if plan.is_long else EVENTS_MAX
        self.kernel = Kernel(plan.seed * 7 + 1, events_max)
        self.random = random.Random(plan.seed * 7 + 2)
        self.sometimes = self.kernel.sometimes
        self.history = History(shared=plan.shared, ordered=True, calm=not plan.faults)
        self.database = SimDatabase(f"seed {plan.seed}")
        self.server_clock = StoreClock(self.kernel)
        self.hosts = [Host(self, f"host{i}") for i in range(plan.hosts)]
        self.settings, self.report = settings_of(plan), report_of(plan)
        self.supervisors: list[SimSupervisor] = []
        self.runs: dict[str, RunDir] = {}
        self.chances: dict[str, tuple[float, float]] = {}
        self.locked: dict[int, float] = {}
        self.newest_job = 0
        self.away_until_s = 0.0
        """No supervisor is started before."""
        self.deleted: list[Row] = []
        """Jobs as they stood when they were deleted."""
        self.reclaim_pause_s = 0.0
        """Between two searches for dead runs, at least."""
        self.nemesis = Nemesis(self)
        self.completions = Completions(self)
        self.versions = Versions(self)
        self.schedules = Schedules(self)
        self.schedules.declare()
        self.quotas = Quotas(self)
        self.quotas.declare()
        self.flows = Flows(self)
        self._plans: dict[str, JobPlan] = {}
        self.snoozed: Counter[int] = Counter()
        """How often each job has said "not yet"."""
        self._restless, self._ending = True, False
        self._producer = Process("producer")
        self._producer_link = Link(self.kernel, self._producer)
        self._producer_store = SimStore(
            self,
            self.database,
            clock=self.store_clock(self.hosts[0]),
            link=self._producer_link,
            root=RunPath(self.hosts[0]),
            run="producer",
        )

    # -- from start to end -------------------------------------------------------------

    def run(self) -> History:
        """Let everything happen."""
        random.seed(self.plan.seed * 7 + 3)
        with in_virtual_time(self.kernel):
            check_often(
                often=not self.plan.coarse,
                ttl_s=self.plan.ttl_s,
                checks_s=self.plan.checks_s,
                ticks=self.schedules.has_any,
                folds_s=0.0 if self.flows.has_any else None,
                polls=self.quotas.has_any,
            )
            try:
                self._run()
            except Endless as endless:
                self.history.broken.append(str(endless))
        self.history.broken += self.kernel.crashes
        conclude(self)
        return self.history

    def _run(self) -> None:
        plan, kernel = self.plan, self.kernel
        for number in range(plan.supervisors):
            self._start(self.hosts[number % len(self.hosts)], number)
        for number, job in enumerate(plan.jobs):
            for at_s in (job.at_s, *job.again_s):
                kernel.at(at_s, lambda n=number, j=job: self._produce(f"c{n}", j))
        for fault in plan.faults:
            kernel.at(fault.at_s, lambda f=fault: self.nemesis.do(f))
        self.schedules.begin(self._change_schedule)
        self.quotas.begin()
        self.flows.begin()
        kernel.run(plan.quiet_at_s)
        self._restless = False
        if self.versions.are_mixed:
            self.versions.upgrade()
        self.nemesis.be_quiet()
        self.reclaim_pause_s = QUIET_PAUSE_S
        ttl_s = max(QUIET_TTL_S, plan.ttl_s)
        self._check_rarely(ttl_s)
        self.settings = msgspec.structs.replace(self.settings, lease_ttl_s=ttl_s)
        for supervisor in self.supervisors:
            supervisor.hold_longer(self.settings)
            if not plan.coarse:
                supervisor.feed(inp.Drain("a new version"))
        kernel.run(plan.quiet_at_s + 20.0)
        self.schedules.end(lambda: self._tick_rarely(ttl_s))
        patience_s = LONG_PATIENCE_S if plan.is_long else PATIENCE_S
        kernel.run(plan.quiet_at_s + patience_s, self._is_done)
        kernel.run(kernel.now_s + max(SETTLE_S, CHECKS * plan.checks_s))
        self._ending = True
        for supervisor in self.supervisors:
            supervisor.feed(inp.Drain("the end"))
        kernel.run(kernel.now_s + END_S, self._is_over)

    @property
    def is_restless(self) -> bool:
        """Whether it is not quiet yet."""
        return self._restless

    def plan_of(self, frame: RunJob) -> JobPlan | None:
        """Return what was planned for a job; None: it was not."""
        return self._plans.get(call_of(frame.payload))

    def _check_rarely(self, ttl_s: float) -> None:
        check_often(
            often=False,
            ttl_s=ttl_s,
            quiet_s=QUIET_CHECKS_S,
            checks_s=self.plan.checks_s,
            ticks=not self.schedules.are_over,
            folds_s=QUIET_FOLDS_S if self.flows.has_any else None,
        )

    def _tick_rarely(self, ttl_s: float) -> None:
        self._check_rarely(ttl_s)
        for supervisor in self.supervisors:
            supervisor.hold_longer(self.settings)

    def _is_done(self) -> bool:
        return self.database.jobs.unfinished == 0 and self.schedules.are_over

    def _is_over(self) -> bool:
        return not any(s.process.alive for s in self.supervisors)

    def _start(self, host: Host, number: int) -> None:
        name = f"run{len(self.runs) + 1}"
        supervisor = SimSupervisor(self, host, name, number)
        self.supervisors = [s for s in self.supervisors if s.process.alive]
        self.supervisors.append(supervisor)
        supervisor.begin()

    def supervisor_ended(self, ended: SimSupervisor) -> None:
        """A service manager starts another one, unless this is the end."""
        if not self._ending:
            self.sometimes["a supervisor was started again"] += 1
            pause_s = 0.1 + 5.0 * self.random.random()
            pause_s += max(0.0, self.away_until_s - self.kernel.now_s)
            self.kernel.after(
                pause_s,
                lambda: None if self._ending else self._start(ended.host, ended.number),
                ended.host.machine,
            )

    # -- producers ---------------------------------------------------------------------

    def _produce(self, call: str, job: JobPlan) -> None:
        self.kernel.spawn(self._producer, lambda: self._enqueue(call, job))

    def new_job(self, call: str, job: JobPlan) -> NewJob:
        """Return a planned job as a producer hands it in, and keep its plan."""
        self._plans[call] = job
        return NewJob(
            kind=job.kind,
            pool=job.pool,
            payload=self.payload(call, job.value),
            tenant=job.tenant,
            quota_values={"v": job.value} if job.value and job.stamped else None,
            priority=job.priority,
            delay_ms=job.delay_ms,
            key=call if job.key else None,
            unique=job.unique,
            expires_in_ms=job.expires_in_ms,
            max_attempts=job.max_attempts,
        )

    def _enqueue(self, call: str, job: JobPlan) -> None:
        new = self.new_job(call, job)
        for _ in range(3):
            answer, number, created = "refused", 0, False
            try:
                (stored,) = self._producer_store.enqueue([new])
                answer, number, created = "stored", stored.id, stored.created
            except OutcomeUnknown:
                answer = "unknown"
            except JobpoolError:
                answer = "refused"
            self.note(
                Called(
                    at_s=self.kernel.now_s,
                    call=call,
                    answer=answer,
                    job=number,
                    created=created,
                )
            )
            if answer == "stored":
                if not created:
                    self.sometimes["a key or unique text was known"] += 1
                self.newest_job = max(self.newest_job, number)
                self.wake()
                return
            if answer == "unknown" and new.key is None:
                return
            self.kernel.sleep(AGAIN_S)

    def asked(self, call: str) -> None:
        """A handler enqueues a job; the answer is not needed."""
        self.note(Called(at_s=self.kernel.now_s, call=call, answer="unknown"))

    def payload(self, call: str, value: str = "") -> bytes:
        """Return arguments that name the call, and what quotas may count by."""
        return msgspec.json.encode({"call": call} | ({"v": value} if value else {}))

    def pool_of(self, kind: str) -> str:
        """Return a kind's pool."""
        return kind.partition(".")[0]

    def fate_of(self, frame: RunJob) -> Fate:
        """Return what an attempt does."""
        call = call_of(frame.payload)
        if fate := self.schedules.fate_of(call, frame):
            return fate
        job = self._plans.get(call)
        if job is None:
            return OK
        if self.snoozed[frame.id] < job.snoozes:
            return Fate("snooze", SNOOZE_S)
        return job.fates[min(frame.attempt, len(job.fates)) - 1]

    # -- operators ---------------------------------------------------------------------

    def operate(self, what: str, where: int) -> None:
        """Cancel or revive some job."""
        jobs = list(range(1, self.newest_job + 1)) or [0]
        leased = [j for held in self.database.jobs.held.values() for j in sorted(held)]
        if what == "cancel" and where % 3 and leased:
            jobs = leased
        job = jobs[where % len(jobs)]

        def act() -> None:
            try:
                self._producer_store.operate(what, job)
            except JobpoolError:
                return  # the caller checks again later
            self.wake()

        self.kernel.spawn(self._producer, act)

    def pause(self, where: int, seconds: float) -> None:
        """Pause a pool, and resume it."""
        pool = self.plan.pools[where % len(self.plan.pools)][0]

        def act() -> None:
            store = self._producer_store
            try:
                store.pause(pool=pool)
            except JobpoolError:
                self.sometimes["a pause failed"] += 1
            self.kernel.sleep(seconds)
            for _ in range(20):
                try:
                    store.resume(pool=pool)
                except JobpoolError:
                    self.kernel.sleep(AGAIN_S)
                else:
                    break
            self.wake()

        self.kernel.spawn(self._producer, act)

    def _change_schedule(self, act: Callable[[SimStore], object], name: str) -> None:
        store = self._producer_store
        attempt = self.schedules.attempt
        self.kernel.spawn(self._producer, lambda: attempt(act, name, store))

    def as_operator(self, act: Callable[[SimStore], object]) -> None:
        """Let an operator do something."""
        self.kernel.spawn(self._producer, lambda: act(self._producer_store))

    def require(self) -> None:
        """Ask for a feature of the newer release, until all is quiet."""
        store = self._producer_store
        asks = self.versions.asks(store, lambda: self._restless)
        self.kernel.spawn(self._producer, asks)

    # -- what happens by chance --------------------------------------------------------

    def allow(self, name: str, fault: Fault) -> None:
        """Make something go wrong now and then, for a while."""
        self.chances[name] = (fault.share, self.kernel.now_s + fault.seconds)

    def chance(self, name: str) -> bool:
        """Say whether it goes wrong this time."""
        found = self.chances.get(name)
        if found is None or self.kernel.now_s >= found[1]:
            return False
        return self.random.random() < found[0]

    def is_locked(self, job: int) -> bool:
        """Say whether another open transaction holds a job."""
        locked = self.locked.get(job, 0.0) > self.kernel.now_s
        return locked or self.completions.holds(job)

    def wake(self) -> None:
        """Wake the supervisors, most of the time."""
        for supervisor in self.supervisors:
            if not (self._restless and self.random.random() < 0.1):
                self.kernel.after(self.kernel.soon_s(), supervisor.on_wake)

    # -- places ------------------------------------------------------------------------

    def store_clock(self, host: Host) -> HostClock:
        """Return the clock that the store uses for a process on a host."""
        return self.server_clock if self.plan.shared else host.clock

    def new_run(self, name: str, host: Host) -> Run:
        """Return the record of a supervisor's run."""
        return Run(
            id=name,
            host=host.name,
            boot_id=host.boot_id,
            pid=len(self.runs) + 1,
            pid_namespace=1,
            version="0",
            format=self.versions.deployed,
            application=APPLICATION if self.schedules.has_any else None,
        )

    def run_of(self, name: str) -> RunDir:
        """Return a run's directory, also one that has been removed."""
        return self.runs[name]

    def links(self) -> list[Link]:
        """Return every supervisor's link to the store."""
        return [*(s.link for s in self.supervisors), self._producer_link]

    def some_tree(self, where: int) -> Tree | None:
        """Return a child; one that runs an attempt, if there is any."""
        trees = [t for run in self.runs.values() for t in run.trees if t.alive]
        busy = [tree for tree in trees if tree.running is not None] or trees
        return busy[where % len(busy)] if busy else None

    def kill_supervisor_of(self, run: RunDir) -> None:
        """A handler kills its parent."""
        self.kernel.kill(run.process)

    def kill_zygotes_of(self, run: RunDir) -> None:
        """A handler kills the zygotes."""
        for supervisor in self.supervisors:
            if supervisor.name == run.name and supervisor.zygotes is not None:
                for pool in sorted(supervisor.zygotes.serving):
                    supervisor.zygotes.lose(pool, "it was killed")

    # -- the book ----------------------------------------------------------------------

    def note(self, record: Record) -> None:
        """Add something to the history."""
        self.history.records.append(record)
        self.quotas.committed(record)

    def observe(self, event: Event) -> None:
        """Record what a supervisor reports."""
        self.sometimes[f"said {event.name}"] += 1
        if isinstance(event, LeaseFenced) and event.lapsed:
            self.sometimes["leases had lapsed"] += 1
        if isinstance(event, Alarm) and "please report" in event.text:
            self.history.broken.append(event.text)
        if isinstance(event, SupervisorDraining):
            self._judge_end(event.reason)

    def hears(self, kind: type[Event]) -> bool:
        """Say yes: everything is counted."""
        del kind
        return True

    def _judge_end(self, reason: str) -> None:
        is_over = reason in ENDED_BY_OTHERS and self.forgets()
        is_over = is_over or self.versions.may_end(reason)
        if reason not in REASONS and not is_over:
            self.history.broken.append(f"a supervisor stops: {reason}")

    def forgets(self) -> bool:
        """Say whether a supervisor was gone for so long that others end its run."""
        gone = self.history.of(Disturbed)
        forgets = any(one.until_s - one.at_s >= FORGOTTEN_S for one in gone)
        self.sometimes["a run that was gone for a day was ended"] += forgets
        return forgets
