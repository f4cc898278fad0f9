"""One real supervisor in virtual time.

Everything that decides is the real thing: `serve`'s start and end, the loop, the
machine, the store thread with its outbox, the pulse, the reclaimer, the housekeeping.
Threads become tasks; processes, sockets and the disk are the shell's.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from jobpool.core.config.settings import Settings
from jobpool.core.isolation.cgroups import Controls
from jobpool.core.rules.run_report import HostReport
from jobpool.errors import JobpoolError, StoreError
from jobpool.sandbox.runs.fence import RECENTLY_S
from jobpool.store.memory import runs as memory_runs
from jobpool.store.protocol import Store
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.machine import Machine
from jobpool.supervisor.machine.state import polling
from jobpool.supervisor.machine.state.slot import SlotState
from jobpool.supervisor.maintenance import (
    housekeeping,
    lease_renewal,
    reclaimer,
    ticking,
)
from jobpool.supervisor.maintenance.housekeeping import Housekeeping
from jobpool.supervisor.maintenance.lease_renewal import LeaseRenewal
from jobpool.supervisor.maintenance.reclaimer import Reclaimer
from jobpool.supervisor.maintenance.run_entry import Upkeep
from jobpool.supervisor.storage import thread
from jobpool.supervisor.storage.thread import StoreThread
from simulation import versions
from simulation.host import Host, RunDir, RunPath, prove_dead, remove_run
from simulation.kernel import Kernel, Process, SimCondition, SimEvent, Task
from simulation.shell import SimChildren, SimReactor
from simulation.store import Link, SimStore
from simulation.zygotes import SimZygotes
from support.store.history import RunBegan, RunEnded

if TYPE_CHECKING:
    from simulation.world import World

# The package has a function of the same name.
serve: Any = import_module("jobpool.supervisor.serve")


class _Green:
    """A thread of the supervisor's that runs as a task."""

    def adopt(self, kernel: Kernel, process: Process) -> None:
        """Set the process it belongs to, before it is started."""
        self._kernel = kernel
        self._process = process
        self._task: Task | None = None
        for name, value in vars(self).items():
            if name in {"_closing", "_woken"} and isinstance(value, threading.Event):
                setattr(self, name, SimEvent(kernel))

    @property
    def ident(self) -> int | None:
        """A value once it has been started, as for a thread."""
        return None if self._task is None else 1

    def start(self) -> None:
        """Run as a task."""
        self._task = self._kernel.spawn(self._process, self.run)  # type: ignore[attr-defined]

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, at most so long."""
        until_s = self._kernel.now_s + (timeout or 0.0)
        while self._task and not self._task.ended and self._kernel.now_s < until_s:
            self._kernel.sleep(0.001)


class SimStoreThread(_Green, StoreThread):
    """`StoreThread` as a task."""

    def adopt(self, kernel: Kernel, process: Process) -> None:
        """See `_Green.adopt`."""
        super().adopt(kernel, process)
        self._changed: Any = SimCondition(kernel)
        self.opened: Any = SimEvent(kernel)

    def _commit(self, store: Any, batch: Any, due: Any) -> bool:
        if due:
            store.pass_point("settling")
        is_written = super()._commit(store, batch, due)
        if is_written and batch.permits:
            self._kernel.sometimes["permits were asked for beside a commit"] += 1
        return is_written

    def _reconcile(self, store: Store) -> None:
        self._kernel.sometimes["a lost answer was looked into"] += 1
        super()._reconcile(store)


class SimLeaseRenewal(_Green, LeaseRenewal):
    """`LeaseRenewal` as a task."""


class SimHousekeeping(_Green, Housekeeping):
    """`Housekeeping` as a task."""

    def check_rarely(self) -> None:
        """Check as rarely as supervisors that start from now on."""
        every_s = {
            self._cancels: housekeeping.CANCELS_EVERY_S,
            self._breakers: housekeeping.BREAKERS_EVERY_S,
            self._formats: housekeeping.FORMATS_EVERY_S,
            self._tick: housekeeping.TICK_EVERY_S,
            self._fold: housekeeping.FOLD_EVERY_S,
            self._ticking.publish: housekeeping.PUBLISH_EVERY_S,
        }
        for turn in self._turns:
            turn.every_s = every_s.get(turn.chore, turn.every_s)


class SimReclaimer(_Green, Reclaimer):
    """`Reclaimer` as a task."""

    def pace(self, world: World) -> None:
        """Check rarely once it is quiet."""
        self._closing = _Pauses(world)


class _Pauses(SimEvent):
    """A wait for the end that gets longer while nothing happens."""

    def __init__(self, world: World) -> None:
        super().__init__(world.kernel)
        self._world = world

    def wait(self, timeout: float | None = None) -> bool:
        """See `SimEvent.wait`."""
        return super().wait(max(timeout or 0.0, self._world.reclaim_pause_s))


class _Fence:
    """`Fence`: kept in the run directory; zygotes check it when it may have passed."""

    def __init__(self, path: Any, *, make: bool) -> None:
        del make
        self._supervisor: SimSupervisor = path
        self._passed_s = float("-inf")

    def move(self, until_s: float) -> None:
        """See `Fence.move`."""
        supervisor = self._supervisor
        run, kernel = supervisor.directory.record, supervisor.kernel
        if self._left_s() <= 0:
            self._passed_s = run.host.clock.boottime_s()
        run.fence_s = until_s
        left_s = until_s - run.host.clock.boottime_s()
        late_s = 0.2 * kernel.random.random()
        kernel.after(
            max(0.0, left_s) + late_s, supervisor.check_fence, run.host.machine
        )

    def passed_recently(self) -> bool:
        """See `Fence.passed_recently`."""
        now_s = self._supervisor.host.clock.boottime_s()
        return self._left_s() <= 0 or now_s - self._passed_s < RECENTLY_S

    def _left_s(self) -> float:
        run = self._supervisor.directory.record
        return run.fence_s - run.host.clock.boottime_s()


class _Directory:
    """`RunDirectory`, as far as a supervisor uses it."""

    def __init__(self, supervisor: SimSupervisor, record: RunDir) -> None:
        self._supervisor = supervisor
        self.record = record
        self.path = None
        self.kept = False

    def fence_path(self) -> Any:
        """Return what names the fence."""
        return self._supervisor

    def open_wake(self) -> int:
        """There is no FIFO; the world wakes it."""
        return -1

    def keep(self) -> None:
        """See `RunDirectory.keep`."""
        self.kept = True


class SimSupervisor(serve._Supervisor):  # type: ignore[misc]
    """A supervisor's process, from its start to its end."""

    def __init__(self, world: World, host: Host, name: str, number: int) -> None:
        kernel = world.kernel
        self.world, self.kernel, self.host, self.number = world, kernel, host, number
        self.name = name
        self.process = Process(name)
        self.link = Link(kernel, self.process)
        self._reread = None
        self._opener = self._open_here
        self._alive = None
        self._memory = None
        self._settings = world.settings
        self._observer = world
        self._clock = self._store_clock = host.clock
        self._own = world.new_run(name, host)
        self._reactor: Any = SimReactor(kernel, self.process, host.clock, world)
        self._machine = Machine(
            world.settings, pid=number, on_registry=self._enter, burst=False
        )
        self._store = SimStoreThread(self._open, name, self._reactor.post, host.clock)
        self._isolation: Any = SimpleNamespace(
            check=lambda _s: None,
            reductions=lambda _s, _m: (),
            lockdown=None,
            controls=Controls(),
        )
        self._upkeep = Upkeep(self._own, self._store, host.clock)
        self._renewal = SimLeaseRenewal(
            name,
            world.settings.lease_ttl_s,
            opener=self._open_for_renewal,
            post=self._reactor.post,
            on_wake=self._on_store_wake,
            known=self._store.known,
            lost=self._store.give_up,
            clock=host.clock,
        )
        for part in (self._store, self._renewal):
            part.adopt(kernel, self.process)
        self._reactor.owner = self
        self.zygotes: SimZygotes | None = None
        self.directory: Any = None
        self._housekeeping: Any = None
        self.exit_code: int | None = None
        self._close_by_s = float("inf")
        self.process.on_death.append(self._died)

    def begin(self) -> None:
        """Start its process."""
        self.world.note(
            RunBegan(at_s=self.kernel.now_s, run=self.name, host=self.host.name)
        )
        record = RunDir(self.host, self.name, self.process)
        self.directory = _Directory(self, record)
        self.world.runs[self.name] = record
        self.host.runs[self.name] = record
        self.kernel.spawn(self.process, self._main)

    def feed(self, event: Any) -> None:
        """Let an event arrive, as from a signal."""
        self._reactor.call(lambda: self._reactor.feed(event))
        if isinstance(event, inp.Drain | inp.Stop) and not self.process.stopped:
            stops, end_s = self.process.stops, self.world.plan.drain_s + END_S
            self.kernel.after(end_s, lambda: self._must_have_ended(stops))

    def _must_have_ended(self, stops: int) -> None:
        """Whatever was missing, it must be gone by now, unless it was stopped."""
        if self.process.alive and self.process.stops == stops:
            text = f"{self.name} did not end in time, at {self.kernel.now_s:.1f} s"
            self.world.history.broken.append(text)

    def check_fence(self) -> None:
        """Let the zygotes check the fence."""
        if self.zygotes is not None:
            self.zygotes.check_fence()

    def hold_longer(self, settings: Settings) -> None:
        """Take over another TTL, as SIGHUP does, and check things more rarely."""
        self._settings = settings
        self._renewal.ttl_s = settings.lease_ttl_s
        if self._housekeeping is not None:
            self._housekeeping.check_rarely()

    def idle_pools(self) -> Iterator[str]:
        """Yield the pools with an idle child for which jobs are leased by now."""
        machine = self._machine
        step, dispatcher = machine._step, machine._dispatcher
        is_well = (
            self.process.alive
            and not self.process.stopped
            and self.host.asleep_s is None
            and max(self.link.cut_until_s, self.link.faulty_until_s)
            <= self.kernel.now_s
        )
        if not is_well or step.ending or step.fenced or not dispatcher._is_open:
            return
        for pool in machine.pools.values():
            is_idle = any(slot.state is SlotState.IDLE for slot in pool.slots)
            has_room = pool.zygote_up and pool.busy < pool.size and not pool.backlog
            is_shut = pool.unwritten.is_much or any(
                gate.shuts(pool) for gate in dispatcher._gates
            )
            if is_idle and has_room and not is_shut:
                yield pool.name

    def takes(self, kind: str) -> bool:
        """Say whether no gate holds a kind back here."""
        registry, gates = self._machine.registry, self._machine._dispatcher._gates
        held = frozenset[str]().union(*(gate.held() for gate in gates))
        return registry is not None and registry.knows(kind) and kind not in held

    def on_wake(self) -> None:
        """A wake-up has arrived."""
        if self.process.alive:
            self._reactor.call(self._wake_here)

    def _wake_here(self) -> None:
        self._reactor.feed(inp.Notified())
        self._housekeeping.check_cancels()

    def _main(self) -> None:
        self._store.start()
        self._store.opened.wait()
        self._make_keepers()
        try:
            self.exit_code = self._run_in(self.directory, None)
        except StoreError as error:
            # There is one store: there is no reason, unless somebody has ended the run,
            # or a newer release is needed.
            if self.world.versions.is_too_old(self._own):
                self.kernel.sometimes["a supervisor was too old"] += 1
            elif not self.world.forgets():
                self.kernel.crashes.append(f"{self.name} gave up: {error}")
            self.exit_code = serve.EXIT_FAILED
        except JobpoolError:
            self.kernel.sometimes["a supervisor refused to start"] += 1
            self.exit_code = serve.EXIT_FAILED
        finally:
            self._store.close(self._left_to_close_s())
        if not self.directory.kept:
            self.host.forget(self.name)
        self.kernel.after(0.0, lambda: self.kernel.kill(self.process))

    def _make_keepers(self) -> None:
        shared = (self._own,)
        self._housekeeping = SimHousekeeping(
            self._settings,
            self._own.id,
            store=self._store,
            usage=self._machine.usage,
            ticking=self._upkeep.ticking,
            other_pools=self._upkeep.other_pools,
            look=lambda: HostReport(cpu_busy=0.3, available_bytes=2**36),
            clock=self._clock,
        )
        self._reclaimer = SimReclaimer(
            *shared,
            store=self._store,
            may_take=self._renewal.may_take,
            registry=lambda: self._machine.registry,
            post=self._reactor.post,
            on_first_check=lambda _store: (inp.Entered(),),
            clock=self._clock,
        )
        for part in (self._housekeeping, self._reclaimer):
            part.adopt(self.kernel, self.process)
        self._reclaimer.pace(self.world)

    def _open_here(self) -> SimStore:
        return SimStore(
            self.world,
            self.world.database,
            clock=self.world.store_clock(self.host),
            link=self.link,
            root=RunPath(self.host),
            run=self.name,
        )

    def _died(self) -> None:
        how = "killed" if self.exit_code is None else str(self.exit_code)
        self.world.note(RunEnded(at_s=self.kernel.now_s, run=self.name, how=how))
        self.world.supervisor_ended(self)


def _zygotes(reactor: SimReactor, settings: Any, run_id: str) -> SimZygotes:
    zygotes = SimZygotes(reactor, settings, run_id)
    reactor.owner.zygotes = zygotes
    return zygotes


_FINE: Mapping[tuple[Any, str], float] = {
    (place, name): getattr(place, name)
    for place, name in (
        (polling, "LAST_S"),
        (polling, "FACTOR"),
        (housekeeping, "CANCELS_EVERY_S"),
        (housekeeping, "HOST_EVERY_S"),
        (housekeeping, "REPORT_EVERY_S"),
        (housekeeping, "WAITS_EVERY_S"),
        (housekeeping, "UNKNOWN_EVERY_S"),
        (housekeeping, "CONCERNS_EVERY_S"),
        (housekeeping, "PRUNE_EVERY_S"),
        (housekeeping, "SCRUB_EVERY_S"),
        (housekeeping, "USAGE_EVERY_S"),
        (housekeeping, "LOOK_EVERY_S"),
        (housekeeping, "PUBLISH_EVERY_S"),
        (housekeeping, "TICK_EVERY_S"),
        (housekeeping, "FOLD_EVERY_S"),
        (ticking, "TICK_EVERY_S"),
        (reclaimer, "EVERY_S"),
        (reclaimer, "EXPIRED_EVERY_S"),
        (housekeeping, "BREAKERS_EVERY_S"),
        (housekeeping, "FORMATS_EVERY_S"),
        (lease_renewal, "RENEW_EVERY_S"),
        (housekeeping, "RELEASE_EVERY_S"),
    )
}
"""How often supervisors really check things."""
_COARSE_S = (
    *(600.0, 8.0, 60.0, 60.0, 60.0, *[7200.0] * 11),
    *(12.0, 3.0),
)
"""The same except for what follows, so that hours cost little.

Few lives have schedules.
"""
BREAKERS_S = 5.0
"""As really: while things go wrong supervisors must hear of each other's."""
FORMATS_S = 10.0
RELEASE_S = 7200.0
"""No job waits for another one here."""
END_S = 2.0
"""After its drain window a supervisor that was told to end is gone."""
RENEWALS = 5
"""So many fit into a lease."""


def check_often(
    *,
    often: bool,
    ttl_s: float,
    quiet_s: float = 0.0,
    checks_s: float = 0.0,
    ticks: bool = False,
    folds_s: float | None = None,
    polls: bool = False,
) -> None:
    """Let supervisors that start from now on check as often as really, or rarely.

    Args:
        often: as really.
        ttl_s: of their leases.
        quiet_s: between two checks of what only changes while things go wrong.
        checks_s: nothing but renewals is done more often.
        ticks: there are schedules: they are kept as really.
        folds_s: between two looks at flows; None: there are none.
        polls: the store is asked for jobs at least as often as really.
    """
    cancels_s, host_s = (max(each_s, quiet_s) for each_s in _COARSE_S[2:4])
    breakers_s = max(BREAKERS_S, quiet_s)
    checks = (*_COARSE_S[:2], cancels_s, host_s, *_COARSE_S[4:], breakers_s)
    rare_s = (*checks, max(FORMATS_S, quiet_s), ttl_s / RENEWALS, RELEASE_S)
    for ((module, name), real), rare in zip(_FINE.items(), rare_s, strict=True):
        least_s = checks_s if name not in {"FACTOR", "RENEW_EVERY_S"} else 0.0
        is_real = often or (ticks and name in {"TICK_EVERY_S", "PUBLISH_EVERY_S"})
        is_real = is_real or (polls and name == "LAST_S")
        is_fold = name == "FOLD_EVERY_S" and folds_s is not None
        rarely = max(real, folds_s or 0.0) if is_fold else max(rare, least_s)
        setattr(module, name, real if is_real else rarely)


@contextlib.contextmanager
def in_virtual_time(kernel: Kernel) -> Iterator[None]:
    """Replace the machine by the shell in the supervisor's modules."""
    now: dict[tuple[Any, str], Any] = {
        (serve, "Zygotes"): _zygotes,
        (serve, "Children"): SimChildren,
        (serve, "going_first"): contextlib.nullcontext,
        (thread, "going_first"): contextlib.nullcontext,
        (serve, "Fence"): _Fence,
        (memory_runs, "GONE_S"): versions.GONE_S,
        (reclaimer, "prove_dead"): prove_dead,
        (reclaimer, "remove_run"): remove_run,
        (reclaimer, "Path"): RunPath,
        (reclaimer, "threading"): SimpleNamespace(Event=lambda: SimEvent(kernel)),
    }
    before = {place: getattr(*place) for place in now}
    try:
        for (module, name), value in now.items():
            setattr(module, name, value)
        yield
    finally:
        check_often(often=True, ttl_s=0.0)
        for (module, name), value in before.items():
            setattr(module, name, value)
