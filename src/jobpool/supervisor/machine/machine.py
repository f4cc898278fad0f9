"""The machine: a pure state machine over all pools that makes every decision.

Theory of operation. The loop calls `step` with an input and the time, and executes the
commands that it returns; nothing here reads a clock, draws a random number, or touches
a process or the store. Jobs flow one way: leased into a pool's backlog (`dispatcher`),
assigned to a slot (`running`), settled (`accounting`). `application` and `scaling`
provide the children; this module puts the parts together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jobpool.core.config.settings import Settings
from jobpool.core.jobs.trace import Tracer
from jobpool.sandbox.protocol.messages import (
    Done,
    StartFailed,
)
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.admission.circuit_breakers import CircuitBreakers
from jobpool.supervisor.machine.admission.host_memory import HostMemoryGuard
from jobpool.supervisor.machine.admission.host_quotas import HostQuotas
from jobpool.supervisor.machine.admission.memory import MemoryGate
from jobpool.supervisor.machine.admission.probation import Probation
from jobpool.supervisor.machine.attempts.accounting import Accounting
from jobpool.supervisor.machine.attempts.idle import IdleChildren
from jobpool.supervisor.machine.attempts.killing import Killing
from jobpool.supervisor.machine.attempts.permits import Permits
from jobpool.supervisor.machine.attempts.progress import ProgressReports
from jobpool.supervisor.machine.attempts.running import Running
from jobpool.supervisor.machine.attempts.starting import Starting
from jobpool.supervisor.machine.dispatch.dispatcher import Dispatcher
from jobpool.supervisor.machine.dispatch.fencing import LAPSED, UNRENEWED, Fencing
from jobpool.supervisor.machine.fast_path import FastPath
from jobpool.supervisor.machine.pools.application import Loading
from jobpool.supervisor.machine.pools.reports import Reports
from jobpool.supervisor.machine.pools.scaling import Scaling
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.machine.shutdown import REQUESTS, Mode, Request, Shutdown
from jobpool.supervisor.machine.state.places import Places
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.recent_ends import RecentEnds
from jobpool.supervisor.machine.state.slot import (
    ACTIONS,
    FRAME_EVENTS,
    IGNORE,
    NEVER_S,
    Slot,
    SlotEvent,
    SlotState,
)
from jobpool.supervisor.machine.state.step import Step
from jobpool.supervisor.machine.state.usage import Usage


class Machine:
    """The supervisor's decisions, one step at a time.

    Args:
        settings: the operator's settings.
        pid: the supervisor's, for events.
        on_registry: as for `Loading`.
        burst: end once nothing is due any more; see `Shutdown.end_burst`.
        reports_successes: as for `Step`.
        counts: as for `Step`.
        details: as for `Step`.

    Attributes:
        usage: what ended attempts have used; the store thread takes it from there.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        pid: int,
        on_registry: Callable[[Registry], None],
        burst: bool = False,
        reports_successes: bool = True,
        counts: bool = False,
        details: bool = False,
    ) -> None:
        self._burst = burst
        self._on_registry = on_registry
        self.pools: dict[str, Pool] = {}
        self.slots: list[Slot] = []
        for pool_settings in settings.pools:
            pool = Pool(pool_settings, len(self.slots))
            self.pools[pool.name] = pool
            self.slots += pool.slots
        self._step = step = Step(
            reports_successes=reports_successes, counts=counts, details=details
        )
        self._idle = idle = IdleChildren(step, self.pools, self._freed)
        self._starting = Starting(step, self.pools, rest=idle.rest, freed=self._freed)
        progress = ProgressReports(step)
        self.usage = usage = Usage()
        ends = RecentEnds()
        accounting = Accounting(step, self.pools, progress, usage, ends)
        self._completions = accounting.completions
        killing = Killing(
            step,
            self.pools,
            accounting=accounting,
            idle=idle,
            freed=self._freed,
        )
        self._running = running = Running(
            step,
            progress=progress,
            accounting=accounting,
            killing=killing,
            idle=idle,
            freed=self._freed,
        )
        self._memory = MemoryGate(step, self.pools, settings, usage.memory)
        probation = Probation(step, self.pools, self._memory, settings.probation_s)
        breakers = CircuitBreakers(step)
        self._places = places = Places()
        self._permits = permits = Permits(step, killing, places)
        self._guard = guard = HostMemoryGuard(
            step, self.pools, killing.interrupt_at_once
        )
        quotas = HostQuotas(step, places)
        gates = (breakers, quotas, probation, guard, self._memory)
        self._dispatcher = Dispatcher(
            step,
            self.pools,
            running=running,
            idle=idle,
            gates=gates,
            probation=probation,
        )
        self._fast_path = FastPath(
            step, self.pools, progress, running, gates=gates, usage=usage, ends=ends
        )
        self._scaling = Scaling(step, self.pools, self._starting, idle, gates)
        self._reports = Reports(step, self.pools, gates, ends, self._memory)
        self._fencing = Fencing(
            step, self.pools, self._dispatcher, fill=self._scaling.fill
        )
        self._loading = Loading(
            step,
            self.pools,
            settings,
            scaling=self._scaling,
            idle=idle,
            on_registry=self._known,
        )
        actors = (self._starting, running, progress, permits, killing, idle)
        self._actions = {
            name: next(getattr(has, name) for has in actors if hasattr(has, name))
            for cells in ACTIONS.values()
            for name in cells.values()
            if name != IGNORE
        }
        self._shutdown = Shutdown(
            step,
            self.pools,
            pid=pid,
            dispatcher=self._dispatcher,
            idle=idle,
            handle=self._handle,
        )
        self._handlers: Mapping[type, Callable[[Any], None]] = {
            inp.ZygoteLoaded: self._loading.loaded,
            inp.ZygoteLost: self._loading.lost,
            inp.KindsPublished: self._loading.published,
            inp.ChildForked: lambda e: self._slot(e.slot, SlotEvent.FORKED),
            inp.ForkRefused: lambda e: self._slot(
                e.slot, SlotEvent.FORK_FAILED, e.message
            ),
            inp.FramesArrived: self._frames_arrived,
            inp.FrameBroken: lambda e: self._slot(e.slot, SlotEvent.GARBAGE, e.message),
            inp.ChildExited: lambda e: self._slot(e.slot, SlotEvent.EXITED, e),
            inp.OverMemory: lambda e: self._slot(
                e.slot, SlotEvent.SOFT_MEMORY if e.soft else SlotEvent.OVER_MEMORY, e
            ),
            inp.OverProcesses: lambda e: self._slot(
                e.slot, SlotEvent.OVER_PROCESSES, e
            ),
            inp.AttemptSampled: lambda e: self._slot(e.slot, SlotEvent.SAMPLED, e),
            inp.NotIdle: lambda e: self._slot(e.slot, SlotEvent.NOT_IDLE, e.activity),
            inp.Overfull: lambda e: self._slot(e.slot, SlotEvent.OVERFULL),
            inp.Recalled: self._recalled,
            inp.Granted: self._granted,
            inp.GrantFailed: lambda _e: self._dispatcher.failed(),
            inp.Entered: lambda _e: self._dispatcher.open(),
            inp.Renewed: self._fencing.renewed,
            inp.Lapsed: lambda _e: self._fence(self._fencing.lapse(), LAPSED),
            inp.Outdated: lambda _e: self._shutdown.outdated(),
            inp.Settled: self._settled,
            inp.Stored: self._stored,
            inp.PermitsAnswered: permits.answered,
            inp.CancelAsked: self._cancel_asked,
            inp.Notified: lambda _e: self._dispatcher.hint(),
            inp.HostSeen: self._host_seen,
            inp.HostMemorySeen: self._host_memory_seen,
            inp.HostKilled: breakers.host_killed,
            inp.BreakersSeen: breakers.seen,
            inp.Reload: self._reload,
            inp.Drain: lambda e: self._shutdown.ask(Request.DRAIN, e.reason),
            inp.Stop: lambda e: self._shutdown.ask(Request.STOP, e.reason),
            inp.Tick: lambda _e: None,
        }

    # -- public --------------------------------------------------------------------

    @property
    def registry(self) -> Registry | None:
        """The kinds, once a zygote has reported them."""
        return self._step.registry

    @property
    def mode(self) -> Mode:
        """The supervisor's mode."""
        return self._shutdown.mode

    @property
    def takes_reloads(self) -> bool:
        """Whether a `Reload` has an effect now."""
        return REQUESTS[self.mode][Request.RELOAD] != IGNORE

    @property
    def end_by_s(self) -> float:
        """When it ends at the latest; infinity: it was not asked to end."""
        return self._shutdown.end_by_s

    def trace_by(self, tracer: Tracer) -> None:
        """Name the spans of all attempts that begin from now on, and report them."""
        self._step.tracer = tracer

    def start(self, now_s: float, now_ms: int) -> list[cmd.Command]:
        """Begin, once the store is open: ask for every pool's zygote."""
        self._step.set_time(now_s, now_ms, slept_s=0.0)
        self._shutdown.opened()
        self._step.out.extend(cmd.StartZygote(name) for name in self.pools)
        return self._step.take()

    def step(
        self,
        event: inp.SupervisorEvent,
        now_s: float,
        now_ms: int,
        slept_s: float = 0.0,
    ) -> list[cmd.Command]:
        """Take one input.

        Args:
            event: what happened.
            now_s: monotonic time; never before that of an earlier step.
            now_ms: wall clock; only for events.
            slept_s: how long this host has slept, which `now_s` excludes.

        Returns:
            The commands, in order.
        """
        self._step.set_time(now_s, now_ms, slept_s)
        if self._fencing.is_due and not isinstance(event, inp.Renewed):
            self._fence(self._fencing.close(), UNRENEWED)
        self._handlers[type(event)](event)
        if self._fencing.is_due:
            self._fence(self._fencing.close(), UNRENEWED)
        if now_s >= self._step.earliest_s:
            self._deadlines()
        self._dispatcher.ask()
        self._shutdown.maybe_finish()
        return self._step.take()

    def next_deadline_s(self) -> float:
        """Return the monotonic time at which a `Tick` is due."""
        return self._dispatcher.next_s(at_latest_s=self._step.earliest_s)

    def _host_seen(self, event: inp.HostSeen) -> None:
        self.usage.memory.know(event.usual_of_kinds)
        self._scaling.host_seen(event)
        self._reports.host_seen(event)

    def _host_memory_seen(self, event: inp.HostMemorySeen) -> None:
        self._guard.seen(event)
        self._memory.seen(event)

    def _known(self, registry: Registry) -> None:
        """Every zygote is up."""
        self._shutdown.loaded()
        self._places.caps = registry.host_caps
        self._on_registry(registry)

    def _reload(self, event: inp.Reload) -> None:
        if not self.takes_reloads:
            return
        self._memory.set(event.settings)
        self._dispatcher.try_again()
        self._loading.reload(event)

    # -- slots ---------------------------------------------------------------------

    def _slot(self, number: int, event: SlotEvent, detail: object = None) -> None:
        self._handle(self.slots[number], event, detail)

    def _handle(self, slot: Slot, event: SlotEvent, detail: object = None) -> None:
        """Do what the slot table says about *event* in the slot's state."""
        action = ACTIONS[slot.state][event]
        if action != IGNORE:
            self._actions[action](slot, detail)

    def _frames_arrived(self, event: inp.FramesArrived) -> None:
        slot, frames = self.slots[event.slot], event.frames
        for frame in frames:
            if isinstance(frame, Done):
                frame.peak_rss_bytes = max(frame.peak_rss_bytes, event.peak_rss_bytes)
        handled = 0
        while handled < len(frames):
            if plain := self._fast_path.take(slot, frames, handled):
                handled += plain
                continue
            frame = frames[handled]
            detail = frame.message if isinstance(frame, StartFailed) else frame
            self._handle(slot, FRAME_EVENTS[type(frame)], detail)
            handled += 1
        self._running.attend()
        self._dispatcher.top_up(slot)

    def _freed(self, slot: Slot) -> None:
        """A slot can take a job, or needs a child."""
        pool = self.pools[slot.pool]
        if slot.state is SlotState.IDLE:
            pool.has_child()
            unwanted = slot.worn or self._scaling.has_surplus(pool)
            if self._step.ending or unwanted:
                self._idle.retire(slot)
                return
        else:
            self._scaling.fill(pool)
        self._dispatcher.dispatch(pool)
        self._dispatcher.try_again(but=pool.name)  # memory may have become free
        if self._burst and not pool.busy:
            pool.polling.hint()

    def _recalled(self, event: inp.Recalled) -> None:
        slot = self.slots[event.slot]
        self._running.recalled(slot, event)
        self._dispatcher.dispatch(self.pools[slot.pool])

    def _stored(self, event: inp.Stored) -> None:
        slot = self.slots[event.slot]
        if slot.child == event.child and slot.state is SlotState.BUSY:
            slot.asking -= 1
            slot.queue[0].beat_s = self._step.now_s
            self._step.out.append(cmd.Send(slot.number, event.answer))
        self._dispatcher.hint()

    def _cancel_asked(self, event: inp.CancelAsked) -> None:
        tokens = frozenset(event.tokens)
        self._dispatcher.withdraw(tokens)
        busy = [slot for slot in self.slots if slot.queue]
        behind = {
            slot.number: tokens.intersection(job.lease.token for job in queue[1:])
            for slot in busy
            if (queue := list(slot.queue))
        }
        self._step.canceled.update(*behind.values())  # whatever the running ones do
        for slot in busy:
            if slot.queue and slot.queue[0].lease.token in tokens:
                self._handle(slot, SlotEvent.CANCEL)
            elif behind[slot.number]:
                self._step.out.append(cmd.Recall(slot.number, slot.seq))

    # -- the store's answers -------------------------------------------------------

    def _granted(self, event: inp.Granted) -> None:
        if event.batch.leases:
            self._step.granted_s = self._step.now_s
        self._dispatcher.granted(event)
        if event.batch.outdated:
            self._shutdown.outdated()
        # What is handed back, or follows an end, is due once that is written.
        may_end = self._dispatcher.nothing_due and not self._step.unsettled
        if self._burst and may_end:
            self._shutdown.end_burst(event.held)

    def _settled(self, event: inp.Settled) -> None:
        self._step.unsettled -= event.count
        if event.large:
            self._dispatcher.written(event.large)
        if event.stale or event.completed or event.unfinished or event.handed_on:
            self._completions.settled(
                event.completed, event.unfinished, event.stale, event.handed_on
            )

    def _fence(self, slots: list[Slot], reason: str) -> None:
        """Stop attempts whose leases other supervisors may hold."""
        for slot in slots:
            self._handle(slot, SlotEvent.STOP, reason)

    # -- deadlines -----------------------------------------------------------------

    def _deadlines(self) -> None:
        """Do everything that is due, and find the next deadline."""
        step, now_s = self._step, self._step.now_s
        step.earliest_s = NEVER_S
        for slot in self.slots:
            if slot.deadline_s <= now_s:
                slot.deadline_s = NEVER_S
                self._handle(slot, SlotEvent.DEADLINE)
            step.wake_at(slot.deadline_s)
        for pool in self.pools.values():
            self._pool_deadlines(pool, now_s)
        self._permits.keep_time()
        self._dispatcher.keep_time()
        if not step.fenced:
            step.wake_at(self._fencing.at_s)
        self._shutdown.keep_time()

    def _pool_deadlines(self, pool: Pool, now_s: float) -> None:
        self._loading.retry(pool)
        if pool.fork_retry_s:
            if pool.fork_retry_s <= now_s:
                pool.fork_retry_s = 0.0
                self._scaling.fill(pool)
            else:
                self._step.wake_at(pool.fork_retry_s)
        self._dispatcher.held_too_long(pool)
