"""`serve`: assembles a supervisor, runs it, and shuts it down.

Theory of operation. Signals are handled from the first moment on; what they mean in
each mode is decided by `shutdown`. A start, in order: the store is opened (or refuses);
the run directory is made and its lock taken; the zygotes load the application, which
may refuse the start; the run and its kinds are entered in the store; only then are jobs
leased. An end, in order: no more leases, children gone, settlements durable, the run
ended in the store, zygotes gone, the run directory removed. A supervisor that is killed
anywhere in between leaves an open run, whose jobs the next one takes back once it has
proven it dead.

In a store that several hosts share, the run's leases end by time. Lease renewal keeps
them from the moment that the run is entered until it is about to end, and receives the
wake-ups that a FIFO carries on one host.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from jobpool.core.clock import Clock, SystemClock
from jobpool.core.config.settings import Settings
from jobpool.core.config.store_url import without_password
from jobpool.core.events.event import Event, Observer
from jobpool.core.events.figures import (
    AttemptsSucceeded,
    AttemptTraced,
    AttemptUnsuccessful,
)
from jobpool.core.events.jobs import JobSucceeded
from jobpool.core.events.supervisor import Alarm, RestartNeeded, SupervisorStopped
from jobpool.core.formats import TOO_OLD
from jobpool.core.jobs.trace import Tracer
from jobpool.core.rules.admission import Admission
from jobpool.core.version import __version__
from jobpool.errors import ConfigError, JobpoolError, StoreRefused
from jobpool.sandbox.cgroups.memory_left import Left, MemoryLeft
from jobpool.sandbox.cgroups.run_group import RunGroup
from jobpool.sandbox.runs.fence import Fence
from jobpool.sandbox.runs.run_directory import RunDirectory
from jobpool.sandbox.system.process_tree import become_subreaper
from jobpool.sandbox.system.procfs import boot_id, pid_namespace
from jobpool.sandbox.zygote import early
from jobpool.store.protocol import Store
from jobpool.store.records.runs import Run
from jobpool.supervisor.isolation import Isolation
from jobpool.supervisor.loop import Alive, Loop
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.machine import Machine
from jobpool.supervisor.machine.pools.application import (
    await_restart,
    settings_to_reload,
)
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.machine.shutdown import Mode
from jobpool.supervisor.machine.state import notices
from jobpool.supervisor.maintenance.host_watch import HostWatch
from jobpool.supervisor.maintenance.housekeeping import Housekeeping
from jobpool.supervisor.maintenance.lease_renewal import LeaseRenewal
from jobpool.supervisor.maintenance.reclaimer import Reclaimer
from jobpool.supervisor.maintenance.run_entry import Upkeep, until_taken
from jobpool.supervisor.os_priority import going_first
from jobpool.supervisor.processes.children import Children
from jobpool.supervisor.processes.host_memory import scarcity
from jobpool.supervisor.processes.zygotes import Zygotes
from jobpool.supervisor.reactor import Reactor
from jobpool.supervisor.storage.inbox import Posts
from jobpool.supervisor.storage.open_patiently import await_opened, open_patiently
from jobpool.supervisor.storage.thread import StoreThread

SWITCH_INTERVAL_S = 0.0005
"""How long the loop may keep the interpreter's lock from the store thread."""
CLOSE_S = 10.0
CLOSE_LATE_S = 0.3
"""After the machine has given up something, the time left for an orderly end."""
STORE_PATIENCE_S = 20.0
"""Longest wait for one answer of a store's server."""
RENEWAL_TRIES = 5
"""Unanswered renewals that fit into a lease."""
EXIT_FAILED = 1


def serve(
    settings: Settings,
    *,
    observer: Observer,
    burst: bool = False,
    reread: Callable[[], Settings] | None = None,
    clock: Clock | None = None,
    alive: Callable[[Path], Alive] | None = None,
    opener: Callable[[], Store] | None = None,
    memory: Callable[[], Left] | None = None,
) -> int:
    """Run a supervisor until it is asked to end; call it in the main thread.

    Args:
        settings: what it is to do.
        observer: gets the events.
        burst: end once nothing is due any more, or what is due waits for longer than
            a minute for its quotas.
        reread: reads the settings again when SIGHUP asks for it; None: SIGHUP
            drains.
        clock: the machine's clocks; tests bring their own.
        alive: called with the run directory once there is one; returns what the loop
            calls while it turns. None: nothing.
        opener: opens the store, in the thread that is to use it; None: it is the one
            that the settings name.
        memory: looks at what memory is left; None: the host's, or its container's.

    Returns:
        The exit code: 0 after a drain or stop in good order, 1 when some ends
        could not be stored.

    Raises:
        ConfigError: application and settings contradict each other.
        AppError: the application does not load.
        StoreError: the store cannot be used. (With each of these, nothing was leased.)
        StoreRefused: features of a newer release came into use while it ran; it has
            drained in good order.
    """
    return _Supervisor(
        settings,
        observer,
        clock,
        burst=burst,
        reread=reread,
        alive=alive,
        opener=opener,
        memory=memory,
    ).run()


class _Supervisor:
    """The parts of one supervisor."""

    def __init__(
        self,
        settings: Settings,
        observer: Observer,
        store_clock: Clock | None,
        *,
        burst: bool,
        reread: Callable[[], Settings] | None,
        alive: Callable[[Path], Alive] | None,
        opener: Callable[[], Store] | None,
        memory: Callable[[], Left] | None,
    ) -> None:
        self._reread = reread
        self._memory = memory
        self._opener = opener
        self._alive = alive
        self._settings = self._first = settings
        self._observer = observer
        self._clock = clock = store_clock or SystemClock()
        self._store_clock = store_clock
        """None: a store that hosts share goes by its own clock."""
        self._own = Run(
            id=early.run_id(),
            host=socket.gethostname(),
            boot_id=boot_id(),
            pid=os.getpid(),
            pid_namespace=pid_namespace(),
            version=__version__,
            application=settings.app,
            pools={pool.name: pool.size_text for pool in settings.pools},
        )
        self._reactor = Reactor(clock, observer)
        self._machine = Machine(
            settings,
            pid=os.getpid(),
            burst=burst,
            on_registry=self._enter,
            reports_successes=observer.hears(JobSucceeded),
            counts=observer.hears(AttemptsSucceeded),
            details=observer.hears(AttemptUnsuccessful),
        )
        self._store = StoreThread(
            lambda: open_patiently(
                self._open_with_directory, observer, clock, wait=self._store.rest
            ),
            self._own.id,
            self._reactor.post,
            clock,
        )
        self._store.burst = burst
        self._close_by_s = float("inf")
        """When the end waits no longer; infinity: it has not begun."""
        self._trace_key: bytes | None = None
        """The store's, once it is open; None: nobody hears of spans."""
        self._tracer: Tracer | None = None
        self._isolation = Isolation()
        self._upkeep = Upkeep(self._own, self._store, clock)
        self._renewal = LeaseRenewal(
            self._own.id,
            settings.lease_ttl_s,
            opener=self._open_for_renewal,
            post=self._reactor.post,
            on_wake=self._on_store_wake,
            known=self._store.known,
            lost=self._store.give_up,
            clock=clock,
        )

    def run(self) -> int:
        """Start, run, end."""
        self._isolation.check(self._settings)
        # A parent may have left it ignored: then no child's status could be reaped.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        become_subreaper()
        switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._reactor.on_signals(self._signal_actions())
        self._store.start()
        try:
            finish = await_opened(
                self._store.opened, self._machine, self._reactor, self._observer
            )
            if finish is not None:
                self._close_by_s = 0.0  # there is nothing to wait for
                self._report_stopped(finish)
                return finish.exit_code
            if self._store.error is not None:
                raise self._store.error
            self._trace()
            self._make_keepers()
            with (
                self._directory as directory,
                self._isolation.entered(directory) as group,
            ):
                return self._run_in(directory, group)
        finally:
            self._store.close(self._left_to_close_s())
            self._reactor.close()
            sys.setswitchinterval(switch_interval_s)

    def _trace(self) -> None:
        """Have the spans of attempts reported as the settings say, if anybody hears."""
        if self._trace_key is not None:
            self._tracer = Tracer(self._trace_key, self._settings.traces_sample)
            self._machine.trace_by(self._tracer)

    def _left_to_close_s(self) -> float:
        """Return for how long the end may still wait."""
        now_s = self._clock.monotonic_s()
        until_s = min(now_s + CLOSE_S, self._machine.end_by_s + CLOSE_LATE_S)
        self._close_by_s = min(self._close_by_s, until_s)
        return max(0.0, self._close_by_s - now_s)

    def _make_keepers(self) -> None:
        """Make the maintenance threads: they depend on the kind of store."""
        self._housekeeping = Housekeeping(
            self._settings,
            self._own.id,
            store=self._store,
            usage=self._machine.usage,
            ticking=self._upkeep.ticking,
            other_pools=self._upkeep.other_pools,
            look=HostWatch(self._clock).look,
            clock=self._clock,
        )
        self._reclaimer = Reclaimer(
            self._own,
            store=self._store,
            may_take=self._renewal.may_take,
            registry=lambda: self._machine.registry,
            post=self._reactor.post,
            on_first_check=lambda _store: (self._ready(), inp.Entered()),
            clock=self._clock,
            tracer=lambda: self._tracer,
            details=self._observer.hears(AttemptUnsuccessful),
        )

    def _run_in(self, directory: RunDirectory, group: RunGroup | None) -> int:
        reactor = self._reactor
        zygotes = Zygotes(reactor, self._settings, self._own.id)
        zygotes.cgroup = group.zygotes if group else ""
        if self._store.shared:
            zygotes.fence = directory.fence_path()
            fence = Fence(zygotes.fence, make=True)
            self._renewal.move_fence, zygotes.fenced = fence.move, fence.passed_recently
        children = Children(
            reactor,
            zygotes,
            directory,
            slots=self._machine.slots,
            lockdown=self._isolation.lockdown,
            group=group,
            memory=self._memory or MemoryLeft(scarcity=scarcity).look,
        )
        self._zygotes = zygotes
        loop = Loop(
            self._machine,
            reactor,
            store=self._store,
            children=children,
            zygotes=zygotes,
            observer=self._observer,
            alive=self._alive(directory.path) if self._alive else None,
        )
        if not self._store.shared:
            wake_fd = directory.open_wake()
            reactor.watch(wake_fd, lambda _mask: self._on_wake(wake_fd))
        try:
            with going_first():
                finish = loop.run()
            self._renewal.close()
            if finish.error is None:
                self._leave(finish)
        finally:
            self._renewal.close()
            self._housekeeping.close()
            self._reclaimer.close()
            zygotes.close(self._left_to_close_s() / 2)
            children.close()
            self._store.close(self._left_to_close_s())
            if self._upkeep.entry.may_be_open:
                directory.keep()
        if error := finish.error or self._store.refusal:
            raise error
        if finish.outdated:
            raise StoreRefused(f"{without_password(self._settings.store)}: {TOO_OLD}")
        return finish.exit_code if self._store.error is None else EXIT_FAILED

    # -- the store -----------------------------------------------------------------

    def _open(self, patience_s: float = STORE_PATIENCE_S) -> Store:
        if self._opener is not None:
            return self._opener()
        settings = self._settings
        from jobpool.store.opening import open_store  # noqa: PLC0415 - who brings one needs none

        return open_store(
            settings.store,
            clock=self._store_clock,
            admission=settings.admission,
            patience_s=patience_s,
        )

    def _open_with_directory(self) -> Store:
        """Open it, and make the run directory where the store keeps them."""
        store = self._open()
        try:
            if self._settings.kinds:
                names = tuple(record.kind for record in store.kinds())
                self._reactor.post(inp.KindsPublished(names))
            if self._observer.hears(AttemptTraced):
                self._trace_key = store.trace_key()
            self._directory = RunDirectory.create(store.run_root, self._own.id)
        except BaseException:
            store.close()
            raise
        return store

    def _open_for_renewal(self) -> Store:
        """Open it so that an unanswered renewal leaves time for others."""
        return self._open(max(1.0, self._settings.lease_ttl_s / RENEWAL_TRIES))

    def _enter(self, registry: Registry) -> None:
        """Every zygote is up: enter the run in the store, then take jobs."""
        first = not self._store.kinds
        self._store.kinds = registry.kinds
        self._upkeep.ticking.declared = registry.schedules

        def look(store: Store) -> Posts:
            return (inp.BreakersSeen(tuple(store.breakers()), self._store.saves),)

        def enter(store: Store) -> Posts:
            keepers = self._housekeeping, self._reclaimer
            return self._upkeep.enter(
                store, registry, renewal=self._renewal, keepers=keepers, look=look
            )

        self._store.chore(
            until_taken(
                enter, self._store.chore, lambda: self._machine.mode is Mode.RUNNING
            )
        )
        if first:
            now_ms = self._clock.utc_ms()
            for event in self._isolation.reductions(self._settings, now_ms):
                self._observer.observe(event)

    def _ready(self) -> Event:
        return notices.supervisor_ready(
            self._clock.utc_ms(), self._own, self._settings, self._isolation.controls
        )

    def _leave(self, finish: cmd.Finish) -> None:
        """End the run in the store and report how it ended."""
        if self._store.is_lost:  # What it settled or handed back was not written.
            held = finish.leases_held + finish.handed_back
            finish = msgspec.structs.replace(finish, handed_back=0, leases_held=held)
        else:
            self._store.chore(self._housekeeping.write_usage)
            if finish.leases_held == 0:
                self._store.chore(self._upkeep.entry.end)
        self._report_stopped(finish)

    def _report_stopped(self, finish: cmd.Finish) -> None:
        self._observer.observe(
            SupervisorStopped(
                at_ms=self._clock.utc_ms(),
                pid=self._own.pid,
                how=finish.how,
                handed_back=finish.handed_back,
                leases_held=finish.leases_held,
                took_s=finish.took_s,
            )
        )

    # -- hints and signals ---------------------------------------------------------

    def _on_wake(self, wake_fd: int) -> None:
        os.read(wake_fd, 65536)
        self._reactor.feed(inp.Notified())
        self._reactor.soon(self._housekeeping.check_cancels)

    def _on_store_wake(self) -> None:
        """A wake-up of a store that several hosts share; called by lease renewal."""
        self._reactor.post(inp.Notified())
        self._housekeeping.check_cancels()

    def _reload(self, reread: Callable[[], Settings]) -> None:
        """Read the settings again and reload the application, if possible."""
        try:
            if not self._machine.takes_reloads:
                raise ConfigError(f"it is {self._machine.mode}; try again once it runs")
            settings = settings_to_reload(self._settings, reread)
            self._isolation.check(settings)
        except JobpoolError as exc:
            text = f"not reloaded: {exc}"
            self._observer.observe(Alarm(at_ms=self._clock.utc_ms(), text=text))
            return
        if names := await_restart(self._first, settings):
            now_ms = self._clock.utc_ms()
            self._observer.observe(RestartNeeded(at_ms=now_ms, settings=names))
        self._settings = self._zygotes.settings = settings
        self._housekeeping.settings = settings
        self._trace()
        self._renewal.ttl_s = settings.lease_ttl_s
        self._store.chore(partial(_admit_by, settings.admission))
        self._reactor.feed(inp.Reload(settings))

    def _signal_actions(self) -> dict[int, Callable[[], None]]:
        hup = self._reread

        def drain(number: signal.Signals) -> Callable[[], None]:
            return lambda: self._reactor.feed(inp.Drain(number.name))

        return {
            signal.SIGTERM: drain(signal.SIGTERM),
            signal.SIGINT: drain(signal.SIGINT),
            signal.SIGHUP: partial(self._reload, hup) if hup else drain(signal.SIGHUP),
            signal.SIGQUIT: lambda: self._reactor.feed(inp.Stop("SIGQUIT")),
        }


def _admit_by(admission: Admission, store: Store) -> Posts:
    """Have what handlers enqueue be limited as the configuration says now."""
    store.admit_by(admission)
    return ()
