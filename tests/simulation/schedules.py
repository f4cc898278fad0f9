"""Schedules in a life, and what must hold for their ticks.

Theory of operation. Operators put schedules and change them, and an application
declares some, others in its second version. What each step of a supervisor commits is
looked at in that very transaction: whether each new tick is one that the schedule has,
is the only one of its time, and has one job; and whether its policy let it. Twice a
second the world looks for ticks that are late although a supervisor was well all the
time. That a tick's job is not lost, and made once, is for the invariants of all jobs:
each tick is a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobpool.core.jobs.job import UNFINISHED
from jobpool.core.rules.schedules.policy import Overlap
from jobpool.core.rules.schedules.schedule import Declared, TickState
from jobpool.errors import JobpoolError, UsageError
from jobpool.sandbox.protocol.messages import RunJob
from jobpool.store.memory.tables.rows import Row
from jobpool.store.memory.tables.ticks import Tick
from jobpool.store.statements.schedules import StoredSchedule
from simulation.plan import Fate, SchedulePlan
from support.store.history import Called

if TYPE_CHECKING:
    from simulation.store import SimDatabase, SimStore
    from simulation.supervisor import SimSupervisor
    from simulation.world import World

APPLICATION = "sim"
CALL = "schedule:"

LOOK_EVERY_S = 0.5
WELL_S = 15.0
"""After so long without trouble a supervisor has no trouble left."""
LATE_S = 1.5
"""By so much a tick may be late: a second, and the way to the store."""
MINUTE_MS = 60_000
AGAIN_S = 1.0


class Schedules:
    """The schedules of a world, and the book of their ticks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plans = {plan.name: plan for plan in world.plan.schedules}
        self._known: dict[int, TickState] = {}
        """How each tick was when it was last looked at."""
        self._calls: dict[int, str] = {}
        """By tick."""
        self._times: dict[tuple[int, int], int] = {}
        """The tick of each nominal time of each schedule."""
        self._changed_ms: dict[str, int] = {}
        """When operators last changed a schedule."""
        self._well_since_s: dict[str, float] = {}
        self._jumped_s = 0.0
        self._jumps = any(f.what.startswith("jump") for f in world.plan.faults)
        self._said: set[str] = set()
        self.deployed = "1"
        """The application's version."""
        self.has_any = bool(self._plans)
        self.are_over = not self.has_any
        """They are paused for good: no tick is due any more."""

    @property
    def _database(self) -> SimDatabase:
        return self._world.database

    def declare(self) -> None:
        """Let the application that loads from now on declare what its version does."""
        if self.has_any:
            self._world.report = replace(
                self._world.report,
                version=self.deployed,
                schedules=tuple(self._declared()),
            )

    def _declared(self) -> Iterator[Declared]:
        for plan in self._plans.values():
            if self.deployed in plan.versions:
                yield self._as_declared(plan)

    def _as_declared(self, plan: SchedulePlan) -> Declared:
        return Declared(
            name=plan.name,
            kind=plan.kind,
            pool=self._world.pool_of(plan.kind),
            payload=self._world.payload(f"{CALL}{plan.name}"),
            rule=plan.rule,
            policy=plan.policy,
        )

    def begin(
        self, operate: Callable[[Callable[[SimStore], object], str], None]
    ) -> None:
        """Let operators put what no version declares, and begin to look.

        Args:
            operate: calls `attempt` as an operator.
        """
        self._operate = operate
        kernel = self._world.kernel
        for plan in self._plans.values():
            if not plan.versions:
                kernel.at(plan.at_s, lambda p=plan: self._put(p))
        if self.has_any:
            kernel.after(LOOK_EVERY_S, self._look)

    # -- operators ---------------------------------------------------------------------

    def deploy(self) -> None:
        """Deploy the application's second version."""
        self.deployed = "2"
        self.declare()

    def change(self, what: str, where: int, seconds: float) -> None:
        """Pause, remove or put some schedule; a paused one is resumed."""
        plan = list(self._plans.values())[where % len(self._plans)]
        if what == "pause":
            self._operate(lambda store: store.pause_schedule(plan.name), plan.name)
            self._world.kernel.after(seconds, lambda: self._resume(plan, where % 2 > 0))
        elif not plan.versions:
            self._operate(lambda store: store.remove_schedule(plan.name), plan.name)
            self._world.kernel.after(seconds, lambda: self._put(plan))

    def _put(self, plan: SchedulePlan) -> None:
        if not self.are_over:
            declared = self._as_declared(plan)
            self._operate(lambda store: store.put_schedule(declared), plan.name)

    def _resume(self, plan: SchedulePlan, catch_up: bool) -> None:
        if not self.are_over:
            self._operate(
                lambda store: store.resume_schedule(plan.name, catch_up=catch_up),
                plan.name,
            )

    def end(self, then: Callable[[], None]) -> None:
        """Pause all for good; jobs that there are end."""

        def pause_all(store: SimStore) -> None:
            for name in [s.name for s in self._database.schedules.values()]:
                store.pause_schedule(name)
            self.are_over = True
            self._judge_declared()
            # One that starts from now on must not declare what nobody pauses any more.
            self._world.report = replace(self._world.report, schedules=())
            then()

        if self.has_any:
            self._operate(pause_all, "")

    def attempt(
        self, act: Callable[[SimStore], object], name: str, store: SimStore
    ) -> None:
        """Change a schedule; again, until it has succeeded or makes no sense."""
        while True:
            try:
                act(store)
            except UsageError:
                return  # The schedule is not there.
            except JobpoolError:
                self._world.kernel.sleep(AGAIN_S)
            else:
                return
            finally:
                self._changed_ms[name] = self._store_ms()

    # -- jobs --------------------------------------------------------------------------

    def fate_of(self, call: str, frame: RunJob) -> Fate | None:
        """Return what an attempt of a schedule's job does; None: it is another's."""
        if not call.startswith(CALL):
            return None
        fates = self._plans[call.removeprefix(CALL)].fates
        return fates[(frame.id + frame.attempt) % len(fates)]

    def call_of(self, row: Row, call: str) -> str:
        """Return the call that a job stems from: a schedule's, its tick."""
        return self._calls.get(row.tick or 0, call)

    # -- what must hold: at each step --------------------------------------------------

    def before(self) -> dict[int, tuple[StoredSchedule, bool, int]]:
        """Return each schedule, whether it is busy, and how many jobs it has."""
        return {
            one.id: (one, bool(self._database.ticks.open[one.id]), self._running(one))
            for one in self._database.schedules.values()
        }

    def stepped(
        self, before: dict[int, tuple[StoredSchedule, bool, int]], now_ms: int
    ) -> Iterator[Called]:
        """Judge what a step has done, and yield the calls that it stands for."""
        ticks = self._database.ticks
        for schedule, (stored, is_busy, running) in before.items():
            new = [
                tick
                for tick in map(ticks.get, ticks.of[schedule].values())
                if tick is not None and self._known.get(tick.id) is not tick.state
            ]
            others = any(tick.state is not TickState.SKIPPED for tick in new)
            for tick in new:
                if tick.id not in self._known:
                    self._judge_new(stored, tick, now_ms, is_busy=is_busy or others)
                self._known[tick.id] = tick.state
                if tick.state is TickState.OPEN:
                    yield self._begun(tick)
            now_running = self._running(stored)
            is_alone = stored.declared().policy.overlap is not Overlap.ALLOW_ALL
            if is_alone and now_running > max(1, running):
                self._wrong(f"{stored.name} has {now_running} jobs at once")

    def _judge_new(
        self, stored: StoredSchedule, tick: Tick, now_ms: int, *, is_busy: bool
    ) -> None:
        name, at_ms = stored.name, tick.nominal_ms
        policy, rule = stored.declared().policy, stored.declared().rule
        self._world.sometimes["a tick was stored"] += 1
        self._world.sometimes[f"a tick was {tick.state}"] += 1
        former = self._times.get((stored.id, at_ms))
        # A clock that was ahead by a year has deleted what was old by then.
        if former is not None and (not self._jumps or self._has(former)):
            self._wrong(f"{name} has two ticks at {at_ms}")
        self._times[stored.id, at_ms] = tick.id
        if stored.retired_at_ms is not None:
            self._wrong(f"{name} is retired, and has a tick at {at_ms}")
        if stored.paused_until_ms is not None and now_ms < stored.paused_until_ms:
            self._wrong(f"{name} is paused, and has a tick at {at_ms}")
        if not stored.since_ms < at_ms <= now_ms and stored.since_ms <= now_ms:
            self._wrong(f"{name} has a tick at {at_ms}, which is not due at {now_ms}")
        off_ms = at_ms % MINUTE_MS
        if rule.every_ms is not None:
            off_ms = (at_ms - stored.since_ms) % rule.every_ms
        if off_ms and not rule.from_end:
            self._wrong(f"{name} has a tick {off_ms} ms after its time, at {at_ms}")
        may_skip = policy.overlap not in {Overlap.ALLOW_ALL, Overlap.BUFFER_ALL}
        if tick.state is TickState.SKIPPED and not (may_skip and is_busy):
            self._wrong(f"{name} skipped {at_ms} although nothing was in its way")

    def _has(self, tick_id: int) -> bool:
        return self._database.ticks.get(tick_id) is not None

    def _begun(self, tick: Tick) -> Called:
        row = self._database.jobs.get(tick.job_id or 0)
        if row is None or row.tick != tick.id:
            self._wrong(f"tick {tick.id} is open and has no job")
        call = f"tick:{tick.schedule}:{tick.nominal_ms}"
        self._calls[tick.id] = call
        return Called(
            at_s=self._world.kernel.now_s,
            call=call,
            answer="stored",
            job=tick.job_id or 0,
            created=True,
        )

    def _running(self, stored: StoredSchedule) -> int:
        """Return how many unfinished jobs a schedule has."""
        jobs, ticks = self._database.jobs, self._database.ticks
        rows = (
            jobs.get(tick.job_id)
            for tick_id in ticks.open[stored.id]
            if (tick := ticks.get(tick_id)) is not None and tick.job_id is not None
        )
        return sum(row is not None and row.state in UNFINISHED for row in rows)

    def published(self, run: str, *, has_changed: bool) -> None:
        """Judge what a version of the application was let change."""
        runs = self._database.runs
        mine, now_ms = runs[run], self._store_ms()
        is_newer_there = any(
            (other.app_version or "") > (mine.app_version or "")
            for other in runs.values()
            if other.ended_at_ms is None and other.lease_until_ms > now_ms
        )
        if not has_changed:
            self._world.sometimes["an older version had no say"] += is_newer_there
        elif is_newer_there and not self._jumps:
            self._wrong(f"{run} is of an older version, and changed schedules")

    def _judge_declared(self) -> None:
        runs = self._database.runs.values()
        if self._jumps or not any(run.app_version == self.deployed for run in runs):
            return
        wanted = {one.name for one in self._declared()}
        going = {
            one.name
            for one in self._database.schedules.values()
            if one.application == APPLICATION and one.retired_at_ms is None
        }
        if going != wanted:
            self._wrong(f"{sorted(going)} are declared, and not {sorted(wanted)}")

    # -- what must hold: at any time ---------------------------------------------------

    def _look(self) -> None:
        if self.are_over:
            return
        kernel = self._world.kernel
        jumped_s = self._world.store_clock(self._world.hosts[0]).jumped_s
        if jumped_s != self._jumped_s:
            self._jumped_s = jumped_s
            self._well_since_s.clear()
        well = {s.name for s in self._world.supervisors if self._is_well(s)}
        self._well_since_s = {
            name: self._well_since_s.get(name, kernel.now_s) for name in well
        }
        since_s = min(self._well_since_s.values(), default=kernel.now_s) + WELL_S
        if since_s < kernel.now_s - LATE_S:
            now_ms = self._store_ms()
            since_ms = now_ms - round((kernel.now_s - since_s) * 1000)
            for one in self._database.schedules.values():
                for text in self._late(one, since_ms, now_ms - round(LATE_S * 1000)):
                    self._wrong(f"{one.name}: {text}")
        kernel.after(LOOK_EVERY_S, self._look)

    def _is_well(self, one: SimSupervisor) -> bool:
        """Say whether a supervisor can do all that it should."""
        now_s, keeper = self._world.kernel.now_s, one._housekeeping
        return (
            one.process.alive
            and not one.process.stopped
            and one.host.asleep_s is None
            and max(one.link.cut_until_s, one.link.faulty_until_s) <= now_s
            and keeper is not None
            and keeper.ident is not None
            and not keeper._closing.is_set()
        )

    def _late(self, one: StoredSchedule, since_ms: int, by_ms: int) -> Iterator[str]:
        """Yield what should have happened since one moment, and by another."""
        if one.retired_at_ms is not None or one.paused_at_ms is not None:
            return
        rule = one.declared().rule
        changed_ms = self._changed_ms.get(one.name, 0)
        since_ms = max(since_ms, one.since_ms, changed_ms)
        ticks = self._database.ticks.of[one.id]
        end_ms = None if self._running(one) else self._last_end_ms(one)
        if rule.from_end:
            due_ms = None if end_ms is None else end_ms + (rule.every_ms or 0)
            is_there = due_ms is not None and max(ticks, default=0) >= due_ms
        else:
            due_ms = by_ms - by_ms % MINUTE_MS
            if rule.every_ms is not None:
                due_ms = by_ms - (by_ms - one.since_ms) % rule.every_ms
            is_there = due_ms in ticks
        if due_ms is not None and since_ms < due_ms <= by_ms and not is_there:
            yield f"its tick at {due_ms} is late"
        waiting = [
            tick
            for tick_id in self._database.ticks.open[one.id]
            if (tick := self._database.ticks.get(tick_id)) is not None
            and tick.state is TickState.BUFFERED
        ]
        if waiting and end_ms is not None and since_ms < end_ms <= by_ms:
            yield f"its tick at {waiting[0].nominal_ms} waits for a job that has ended"

    def _last_end_ms(self, one: StoredSchedule) -> int:
        """Return when the last of a schedule's jobs ended, or it began."""
        ends_ms = [one.since_ms]
        for tick_id in self._database.ticks.of[one.id].values():
            tick = self._database.ticks.get(tick_id)
            row = self._database.jobs.get((tick and tick.job_id) or 0)
            ends_ms.append(
                (row and row.finished_at_ms) or (tick and tick.ended_ms) or 0
            )
        return max(ends_ms)

    def _store_ms(self) -> int:
        return self._world.store_clock(self._world.hosts[0]).utc_ms()

    def _wrong(self, text: str) -> None:
        """Say what is wrong, once."""
        kind = text.rstrip("0123456789")
        if kind not in self._said:
            self._said.add(kind)
            at = f" (at {self._world.kernel.now_s:.1f} s)"
            self._world.history.wrong_ticks.append(text + at)
